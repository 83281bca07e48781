package adapter

import (
	"errors"
	"log/slog"
	"reflect"
	"testing"
	"time"

	"github.com/waybillhq/waybill/cmd/waybill/internal/config"
)

func TestKafkaSettingsReachTheClient(t *testing.T) {
	logger := slog.New(slog.DiscardHandler)
	c, err := kafkaConfig(config.Broker{URL: "kafka://u:p@a:1,b:2?mechanism=PLAIN&tls=true", Partitions: 3, Replicas: 2, Retention: time.Hour}, logger)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(c.Brokers, []string{"a:1", "b:2"}) || c.SASL.User != "u" || c.SASL.Password != "p" || c.TLS == nil ||
		c.Partitions != 3 || c.Replicas != 2 || c.TopicConfig["retention.ms"] != "3600000" || c.Logger != logger {
		t.Errorf("got %+v", c)
	}
	if c, err = kafkaConfig(config.Broker{URL: "kafka://a:1", Retention: -1}, logger); err != nil || c.TopicConfig["retention.ms"] != "-1" {
		t.Errorf("for ever: got %+v, error %v", c, err)
	}
	var wrong *ConfigError
	for _, url := range []string{"", "nats://a:1"} {
		if _, err := OpenBroker(t.Context(), config.Broker{Kind: "kafka", URL: url}, logger); !errors.As(err, &wrong) {
			t.Errorf("URL %q: got %v, want a ConfigError", url, err)
		}
	}
}
