package kafka_test

import (
	"testing"
	"time"

	"github.com/waybillhq/waybill/broker/kafka"
)

func TestRetentionIsThatOfTheTopic(t *testing.T) {
	eachServer(t, func(t *testing.T, brokers []string) {
		for name, c := range map[string]struct {
			settings map[string]string
			want     time.Duration
		}{
			"two days":  {map[string]string{"retention.ms": "172800000"}, 48 * time.Hour},
			"for ever":  {map[string]string{"retention.ms": "-1"}, 0},
			"compacted": {map[string]string{"retention.ms": "172800000", "cleanup.policy": "compact"}, 0},
		} {
			t.Run(name, func(t *testing.T) {
				b := open(t, &kafka.Config{Brokers: brokers, TopicConfig: c.settings})
				topic := newTopic(t, b, 1)
				kept, err := b.TopicRetention(t.Context(), []string{topic})
				if err != nil || kept[topic] != c.want {
					t.Errorf("got %v, %v, want %v", kept, err, c.want)
				}
			})
		}
	})
}
