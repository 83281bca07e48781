package kafka

import (
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const keyProduce = 0 // of the protocol's requests

// link watches the connections of one client, through the library's hooks.
type link struct {
	log *slog.Logger
	mu  sync.Mutex
	err error // of the last attempt to connect; nil after any answer
	// lost is closed while err is set.
	lost chan struct{}
}

func newLink(log *slog.Logger) *link {
	return &link{log: log, lost: make(chan struct{})}
}

// OnBrokerConnect implements [kgo.HookBrokerConnect].
func (l *link) OnBrokerConnect(meta kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	l.note(meta, err)
}

// OnBrokerRead implements [kgo.HookBrokerRead].
func (l *link) OnBrokerRead(meta kgo.BrokerMetadata, _ int16, _ int, _, _ time.Duration, err error) {
	// A connection that ends says nothing of the next one.
	if err == nil {
		l.note(meta, nil)
	}
}

func (l *link) note(meta kgo.BrokerMetadata, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.err
	l.err = err
	switch {
	case err != nil && before == nil:
		l.log.Warn("a kafka broker cannot be reached", "broker", meta.Host, "error", err)
		close(l.lost)
	case err == nil && before != nil:
		l.log.Info("kafka answers again", "broker", meta.Host)
		l.lost = make(chan struct{})
	}
}

// trouble returns why the last attempt to connect failed, or nil when any broker
// has answered since.
func (l *link) trouble() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// loss returns a channel that is closed while there is trouble.
func (l *link) loss() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost
}
