package natsjs_test

import (
	"strings"
	"testing"

	"github.com/waybillhq/waybill/broker"
	"github.com/waybillhq/waybill/broker/natsjs"
)

func TestARestartedServerHasWhatItConfirmed(t *testing.T) {
	s := startServer(t)
	s.stop(t)
	s.config.SyncAlways = true
	s.start(t)
	first := open(t, s.ClientURL(), nil)
	ensure(t, first, broker.TopicSpec{Name: "orders", Partitions: 1})
	publish(t, first, record("orders", "a", "1"), record("orders", "a", "2"))
	sub := subscribe(t, first, "g", "orders")
	got := poll(t, sub, 2)
	if err := sub.Commit(t.Context(), []broker.Position{{Partition: broker.Partition{Topic: "orders"}, Settled: got[0].Position}}); err != nil {
		t.Fatal(err)
	}
	s.stop(t)
	s.start(t)
	second := open(t, s.ClientURL(), nil)
	if got := poll(t, subscribe(t, second, "g", "orders"), 1)[0]; got.Record.EventID != "2" {
		t.Errorf("got %s, want 2, the first that was not committed", got.Record.EventID)
	}
}

func TestAServerThatCannotStartSaysWhy(t *testing.T) {
	s := startServer(t)
	tests := []struct {
		name   string
		config *natsjs.EmbeddedConfig
		want   string
	}{
		{"no configuration", nil, "directory"},
		{"no directory", &natsjs.EmbeddedConfig{}, "directory"},
		{"port in use", &natsjs.EmbeddedConfig{StoreDir: t.TempDir(), Port: s.config.Port}, "address already in use"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			e, err := natsjs.StartEmbedded(t.Context(), test.config)
			if err == nil {
				_ = e.Close()
				t.Fatal("it started")
			}
			if !strings.Contains(err.Error(), test.want) {
				t.Errorf("got error %q, want one that names %q", err, test.want)
			}
		})
	}
}
