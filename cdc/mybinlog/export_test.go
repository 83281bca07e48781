package mybinlog

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"sync"

	"github.com/go-mysql-org/go-mysql/replication"

	"github.com/waybillhq/waybill/cdc"
)

// recorder keeps the events of a log as they came, up to a number of them.
type recorder struct {
	mu     sync.Mutex
	events [][]byte
	enough func(events [][]byte) bool
	full   chan struct{}
}

func (r *recorder) HandleEvent(event *replication.BinlogEvent) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, slices.Clone(event.RawData))
	if r.enough(r.events) {
		close(r.full)
		return io.EOF
	}
	return nil
}

// Record returns the events of the log from a position on, as the server sends
// them, until there are enough.
func (s *Source) Record(ctx context.Context, from cdc.Position, enough func(events [][]byte) bool) ([][]byte, error) {
	found, err := s.look(ctx)
	if err != nil {
		return nil, err
	}
	start, err := parsePlace(found.flavor, string(from))
	if err != nil {
		return nil, err
	}
	set, err := start.wire()
	if err != nil {
		return nil, err
	}
	r := &recorder{enough: enough, full: make(chan struct{})}
	syncer := replication.NewBinlogSyncer(replication.BinlogSyncerConfig{
		ServerID: 815, Flavor: found.flavor, Host: s.settings.Addr, User: s.settings.User, Password: s.settings.Passwd,
		RawModeEnabled: true, DisableRetrySync: true, SynchronousEventHandler: r, Logger: slog.New(slog.DiscardHandler),
	})
	defer syncer.Close()
	if _, err := syncer.StartSyncGTID(set); err != nil {
		return nil, err
	}
	select {
	case <-r.full:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.events, nil
}

// Replay returns the batches that a stream tells which is cut off after these
// events.
func (s *Source) Replay(ctx context.Context, from cdc.Position, events [][]byte) ([]cdc.Batch, error) {
	found, err := s.look(ctx)
	if err != nil {
		return nil, err
	}
	start, err := parsePlace(found.flavor, string(from))
	if err != nil {
		return nil, err
	}
	made := newStream(start)
	d := &decoder{ctx: ctx, flavor: found.flavor, names: found.tables(s.config), ask: s.columns, put: made.put, at: made.at}
	defer d.close()
	for _, event := range events {
		if err := d.event(slices.Clone(event)); err != nil {
			return nil, err
		}
	}
	made.fail(io.EOF)
	var batches []cdc.Batch
	for {
		batch, err := made.Next(ctx)
		if errors.Is(err, io.EOF) {
			return batches, nil
		}
		if err != nil {
			return nil, err
		}
		batches = append(batches, batch)
	}
}

// IsHeartbeat reports whether an event only says that the server is there.
func IsHeartbeat(event []byte) bool {
	return replication.EventType(event[4]) == replication.HEARTBEAT_EVENT || replication.EventType(event[4]) == heartbeatLarge
}
