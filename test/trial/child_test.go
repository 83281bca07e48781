package trial

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker/kafka"
	"github.com/waybillhq/waybill/inbox"
	"github.com/waybillhq/waybill/relay"
	"github.com/waybillhq/waybill/store/mysql"
	"github.com/waybillhq/waybill/store/postgres"
)

// The test binary is also the relay and the consumer that are killed: these
// variables say which, and what it works on.
const (
	envPart  = "WAYBILL_TRIAL_PART" // "relay" or "consumer"
	envDSN   = "WAYBILL_TRIAL_DSN"
	envKafka = "WAYBILL_TRIAL_KAFKA"
	envTopic = "WAYBILL_TRIAL_TOPIC" // also the consumer's group
)

func TestMain(m *testing.M) {
	part := map[string]func(context.Context) error{"relay": relayPart, "consumer": consumerPart}[os.Getenv(envPart)]
	if part == nil {
		os.Exit(m.Run())
	}
	go func() { // the pipe ends with the process at its other end, however that does
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := part(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

var errorsOnly = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))

func relayPart(ctx context.Context) error {
	st, err := postgres.Open(ctx, os.Getenv(envDSN), &postgres.Config{MaxConns: 4})
	if err != nil {
		return err
	}
	defer func() { _ = st.Close() }()
	b, err := kafka.Open(ctx, &kafka.Config{Brokers: []string{os.Getenv(envKafka)}})
	if err != nil {
		return err
	}
	defer func() { _ = b.Close() }()
	r, err := relay.New(st, b, &relay.Config{LeaseTTL: 2 * time.Second, SweepEvery: 5 * time.Second, Logger: errorsOnly})
	if err != nil {
		return err
	}
	return r.Run(ctx)
}

// content is the payload of an event.
type content struct {
	Status string      `json:"status"`
	Total  json.Number `json:"total"`
	Poison bool        `json:"poison,omitempty"`
}

func consumerPart(ctx context.Context) error {
	st, err := mysql.Open(ctx, os.Getenv(envDSN), nil)
	if err != nil {
		return err
	}
	defer func() { _ = st.Close() }()
	b, err := kafka.Open(ctx, &kafka.Config{Brokers: []string{os.Getenv(envKafka)}, SessionTimeout: 2 * time.Second})
	if err != nil {
		return err
	}
	defer func() { _ = b.Close() }()
	p, err := inbox.New(st, b, show, &inbox.Config{
		Group: os.Getenv(envTopic), Topics: []string{os.Getenv(envTopic)}, Gate: inbox.GateLatest, BatchSize: 50, PollWait: 100 * time.Millisecond,
		SweepEvery: 500 * time.Millisecond, Logger: errorsOnly,
		CrashTries: 100, // it is not the events' fault that this process is killed
	})
	if err != nil {
		return err
	}
	return p.Run(ctx)
}

const showSQL = `
INSERT INTO purchase_view (tenant, id, status, total, version, event_id, updated_at)
VALUES (?, ?, ?, ?, ?, ?, UTC_TIMESTAMP(6))
ON DUPLICATE KEY UPDATE status = VALUES(status), total = VALUES(total), version = VALUES(version), event_id = VALUES(event_id), updated_at = VALUES(updated_at)`

// show brings the read model to an event.
func show(ctx context.Context, tx *sql.Tx, e waybill.Event) error {
	if e.Type == removed {
		_, err := tx.ExecContext(ctx, "DELETE FROM purchase_view WHERE tenant = ? AND id = ?", e.TenantID, e.AggregateID)
		return err
	}
	var c content
	if err := json.Unmarshal(e.Data, &c); err != nil {
		return inbox.Dead(err)
	}
	if c.Poison {
		return inbox.Dead(errors.New("poison"))
	}
	_, err := tx.ExecContext(ctx, showSQL, e.TenantID, e.AggregateID, c.Status, c.Total.String(), e.AggregateVersion, e.ID)
	return err
}
