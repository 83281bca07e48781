package kafka

import (
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const keyProduce = 0 // of the protocol's requests

// link watches the connections of one client, through the library's hooks.
type link struct {
	log *slog.Logger
	// produced counts the produce requests of which a byte was written.
	produced atomic.Int64

	mu   sync.Mutex
	open int   // connections
	err  error // of the last attempt to connect; nil when it succeeded
	// lost is closed when the last connection is gone and another attempt failed.
	lost chan struct{}
}

func newLink(log *slog.Logger) *link {
	return &link{log: log, lost: make(chan struct{})}
}

// OnBrokerConnect implements [kgo.HookBrokerConnect].
func (l *link) OnBrokerConnect(meta kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	wasDown := l.down()
	l.err = err
	if err == nil {
		l.open++
	}
	switch down := l.down(); {
	case down && !wasDown:
		l.log.Warn("no connection to kafka", "broker", meta.Host, "cause", err)
		close(l.lost)
	case !down && wasDown:
		l.log.Info("connected to kafka again", "broker", meta.Host)
		l.lost = make(chan struct{})
	}
}

// OnBrokerDisconnect implements [kgo.HookBrokerDisconnect].
func (l *link) OnBrokerDisconnect(kgo.BrokerMetadata, net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	wasDown := l.down()
	l.open--
	if l.down() && !wasDown {
		close(l.lost)
	}
}

// OnBrokerWrite implements [kgo.HookBrokerWrite].
func (l *link) OnBrokerWrite(_ kgo.BrokerMetadata, key int16, written int, _, _ time.Duration, _ error) {
	if key == keyProduce && written > 0 {
		l.produced.Add(1)
	}
}

// down is called locked.
func (l *link) down() bool { return l.open <= 0 && l.err != nil }

// trouble returns why there is no connection, or nil.
func (l *link) trouble() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.down() {
		return l.err
	}
	return nil
}

// loss returns a channel that is closed while there is no connection.
func (l *link) loss() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost
}
