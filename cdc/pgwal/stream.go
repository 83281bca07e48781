package pgwal

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/waybillhq/waybill/cdc"
)

// stream is what the caller holds of a [reader], which owns the connection.
type stream struct {
	backlog *backlog
	acked   atomic.Uint64 // the newest acknowledged place
	closing chan struct{}
	once    sync.Once
	reader  *reader
	done    chan struct{} // the reader has ended and the connection is closed
}

func (s *Source) newStream(conn *pgconn.PgConn, t table, start pglogrepl.LSN) *stream {
	st := &stream{backlog: newBacklog(), closing: make(chan struct{}), done: make(chan struct{})}
	st.acked.Store(uint64(start))
	st.reader = &reader{
		conn: conn, backlog: st.backlog, acked: &st.acked, closing: st.closing,
		every:  min(maxFeedback, s.config.SenderTimeout/4),
		silent: max(minSilence, 3*s.config.SenderTimeout),
		told:   start, put: start, heard: now(),
	}
	st.reader.decoder = newDecoder(t.schema, t.name, s.markPrefix(), st.reader.take)
	go func() {
		defer close(st.done)
		err := st.reader.run()
		if err != errClosed { //nolint:errorlint // it is never wrapped
			err = s.ended(err, st.reader.told)
		}
		abandon(conn)
		st.backlog.end(err)
	}()
	return st
}

// Next waits for the next batch.
func (st *stream) Next(ctx context.Context) (cdc.Batch, error) { return st.backlog.take(ctx) }

// Ack notes the place of a batch. It is told with the next feedback.
func (st *stream) Ack(p cdc.Position) {
	lsn, err := parsePosition(p)
	if err != nil {
		return // it is none of ours
	}
	for {
		before := st.acked.Load()
		if uint64(lsn) <= before || st.acked.CompareAndSwap(before, uint64(lsn)) {
			return
		}
	}
}

// Close tells the server what was acknowledged, and waits until it has freed the
// slot.
func (st *stream) Close(ctx context.Context) error {
	st.once.Do(func() {
		close(st.closing)
		st.backlog.close()
		st.reader.wake()
	})
	select {
	case <-st.done:
	case <-ctx.Done():
		_ = st.reader.conn.Conn().Close() // the reader notices
		<-st.done
	}
	return nil
}

// abandon closes a connection without a word. The server notices, and frees the
// slot.
func abandon(conn *pgconn.PgConn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx)
}
