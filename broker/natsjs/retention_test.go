package natsjs_test

import (
	"testing"
	"time"

	"github.com/waybillhq/waybill/broker"
	"github.com/waybillhq/waybill/broker/natsjs"
)

func TestRetentionIsThatOfTheStream(t *testing.T) {
	s := startServer(t)
	for name, c := range map[string]struct{ configured, want time.Duration }{
		"two days": {48 * time.Hour, 48 * time.Hour},
		"for ever": {-1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			b := open(t, s.ClientURL(), &natsjs.Config{Retention: c.configured})
			topic := "kept-" + c.want.String()
			ensure(t, b, broker.TopicSpec{Name: topic, Partitions: 2})
			kept, err := b.TopicRetention(t.Context(), []string{topic})
			if err != nil || kept[topic] != c.want {
				t.Errorf("got %v, %v, want %v", kept, err, c.want)
			}
		})
	}
}
