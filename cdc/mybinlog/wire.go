package mybinlog

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/go-mysql-org/go-mysql/client"
	"github.com/go-mysql-org/go-mysql/packet"
	"github.com/go-mysql-org/go-mysql/replication"

	"github.com/waybillhq/waybill/cdc"
)

// link is the connection that the log comes over. The library reads and
// decodes nothing by itself: it does not connect again, since the caller knows
// better from where, and hands each event over before it reads the next, so
// that nothing piles up.
type link struct {
	decoder *decoder
	ready   chan struct{} // closed when the server has begun to send
	once    sync.Once

	mu     sync.Mutex
	conns  map[*silent]struct{}
	closed bool
}

// address is where the server is and who asks.
type address struct {
	network, host  string
	user, password string
	tls            *tls.Config
	dial           func(ctx context.Context, network, address string) (net.Conn, error)
}

const (
	dialTimeout  = 10 * time.Second
	closeTimeout = 2 * time.Second
)

func (l *link) syncer(to address, serverID uint32, name string, heartbeat time.Duration) *replication.BinlogSyncer {
	return replication.NewBinlogSyncer(replication.BinlogSyncerConfig{
		ServerID: serverID, Flavor: l.decoder.flavor,
		Host: to.host, User: to.user, Password: to.password, TLSConfig: to.tls,
		Localhost: name,
		Option: func(conn *client.Conn) error {
			if _, err := conn.Execute(patientSQL); err != nil {
				return err
			}
			// What was answered is read: nothing is in the old one's buffer.
			conn.Conn = packet.NewConn(newSieve(conn.Conn.Conn, l.decoder))
			return nil
		},
		RawModeEnabled:          true,
		DisableRetrySync:        true,
		HeartbeatPeriod:         heartbeat,
		SynchronousEventHandler: l,
		EventCacheCount:         1,
		// What it would say is returned as well, and its settings are nobody's business.
		Logger: slog.New(slog.DiscardHandler),
		Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) { return l.dial(ctx, to, 3*heartbeat) },
	})
}

// HandleEvent reads one event.
func (l *link) HandleEvent(event *replication.BinlogEvent) error {
	err := l.decoder.event(event.RawData)
	if event.Header.EventType == replication.FORMAT_DESCRIPTION_EVENT {
		l.once.Do(l.begun)
	}
	return err
}

// begun says that all that comes from here on is the log.
func (l *link) begun() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for conn := range l.conns {
		conn.Gather()
	}
	close(l.ready)
}

func (l *link) dial(ctx context.Context, to address, patience time.Duration) (net.Conn, error) {
	l.mu.Lock()
	limit := dialTimeout
	closed := l.closed
	if closed {
		// The library ends its old connection over another one.
		limit, patience = closeTimeout, closeTimeout
	}
	l.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	plain, err := to.dial(ctx, to.network, to.host)
	if err != nil {
		return nil, err
	}
	conn := &silent{GatherConn: cdc.GatherConn{Conn: plain}, patience: max(patience, closeTimeout)}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed && !closed {
		_ = plain.Close()
		return nil, errClosed
	}
	if !closed {
		l.conns[conn] = struct{}{}
	}
	return conn, nil
}

// end makes whatever waits for the server return.
func (l *link) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for conn := range l.conns {
		conn.end()
	}
}

// silent is a connection that ends when nothing has come for a while. Only time
// spent in waiting counts: a reader that was busy longer than that still finds
// what has come meanwhile.
type silent struct {
	cdc.GatherConn
	patience time.Duration

	mu    sync.Mutex
	ended bool
}

func (c *silent) Read(to []byte) (int, error) {
	c.mu.Lock()
	if c.ended {
		c.mu.Unlock()
		return 0, errClosed
	}
	err := c.SetReadDeadline(now().Add(c.patience))
	c.mu.Unlock()
	if err != nil {
		return 0, err
	}
	return c.GatherConn.Read(to)
}

func (c *silent) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	_ = c.SetReadDeadline(now())
}
