package adapter

import (
	"context"
	"log/slog"
	"os"
	"strconv"
	"time"

	"github.com/waybillhq/waybill/broker/kafka"
	"github.com/waybillhq/waybill/cmd/waybill/internal/config"
	"github.com/waybillhq/waybill/cmd/waybill/internal/gate"
)

func kafkaConfig(c config.Broker, logger *slog.Logger) (*kafka.Config, error) {
	out, err := kafka.ParseURL(c.URL)
	if err != nil {
		return nil, &ConfigError{err}
	}
	out.Partitions, out.Replicas, out.Logger = c.Partitions, c.Replicas, logger
	if door := os.Getenv(gate.Env); door != "" { // a child of the demo, whose broker can be out of reach
		out.Dial = gate.Through(door)
	}
	switch {
	case c.Retention > 0:
		out.TopicConfig = map[string]string{"retention.ms": strconv.FormatInt(int64(c.Retention/time.Millisecond), 10)}
	case c.Retention < 0:
		out.TopicConfig = map[string]string{"retention.ms": "-1"}
	}
	return out, nil
}

func openKafka(ctx context.Context, c config.Broker, logger *slog.Logger) (Broker, error) {
	if c.URL == "" {
		return nil, missing("broker.url")
	}
	kc, err := kafkaConfig(c, logger)
	if err != nil {
		return nil, err
	}
	b, err := kafka.Open(ctx, kc)
	if err != nil {
		return nil, err
	}
	return b, nil
}
