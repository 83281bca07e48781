package pgwal

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/waybillhq/waybill/cdc"
)

const (
	// maxFeedback is the longest time between two words to the server.
	maxFeedback = time.Second
	// minSilence is the shortest time without a word from the server after which
	// it is given up. It answers when it is asked, but not while it puts together a
	// large transaction.
	minSilence = time.Minute
	// farewell bounds the end of a stream.
	farewell = 3 * time.Second
	// sending bounds one word to the server.
	sending = 10 * time.Second
)

// reader owns the connection of a stream: it alone reads and writes, so that
// nobody who is slow can keep the server from its answers. While the backlog is
// full it goes on to give feedback, and does not read.
type reader struct {
	conn    *pgconn.PgConn
	decoder *decoder
	backlog *backlog
	acked   *atomic.Uint64
	closing <-chan struct{}

	every, silent time.Duration

	told  pglogrepl.LSN // what the server knows to be acknowledged
	put   pglogrepl.LSN // the end of the last transaction that was put into the backlog
	idle  pglogrepl.LSN // the server has nothing for us before this place that it did not send
	heard time.Time

	mu    sync.Mutex // of the deadline
	awake bool       // the stream is being closed
	next  time.Time  // when feedback is due
}

// run reads until the stream is closed or broken.
func (r *reader) run() error {
	if err := r.feedback(); err != nil {
		return err
	}
	for {
		if err := r.room(); err != nil {
			return err
		}
		message, err := r.conn.ReceiveMessage(context.Background())
		switch {
		case r.isClosing():
			return r.finish()
		case err != nil && pgconn.Timeout(err):
			if since(r.heard) > r.silent {
				return fmt.Errorf("no word from the server for %v", r.silent)
			}
			err = r.feedback()
		case err == nil:
			r.heard = now()
			err = r.receive(message)
		}
		if err != nil {
			return err
		}
	}
}

// room waits while the backlog is full.
func (r *reader) room() error {
	for r.backlog.full() && !r.isClosing() {
		wait(until(r.next), r.backlog.emptied, r.closing)
		r.heard = now() // the server could say nothing
		if until(r.next) <= 0 {
			if err := r.feedback(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *reader) isClosing() bool {
	select {
	case <-r.closing:
		return true
	default:
		return false
	}
}

func (r *reader) receive(message pgproto3.BackendMessage) error {
	switch m := message.(type) {
	case *pgproto3.CopyData:
		if len(m.Data) == 0 {
			return errMalformed
		}
		switch m.Data[0] {
		case pglogrepl.PrimaryKeepaliveMessageByteID:
			return r.keepalive(m.Data[1:])
		case pglogrepl.XLogDataByteID:
			data, err := pglogrepl.ParseXLogData(m.Data[1:])
			if err != nil {
				return err
			}
			return r.decoder.decode(data.WALData)
		}
	case *pgproto3.ErrorResponse:
		return pgconn.ErrorResponseToPgError(m)
	case *pgproto3.CopyDone:
		return errors.New("the server ended the stream")
	}
	return nil
}

// keepalive notes up to where the server has read its log. Between transactions,
// all that were committed before have been sent.
func (r *reader) keepalive(data []byte) error {
	m, err := pglogrepl.ParsePrimaryKeepaliveMessage(data)
	if err != nil {
		return err
	}
	if !r.decoder.within {
		r.idle = max(r.idle, m.ServerWALEnd)
	}
	if m.ReplyRequested {
		return r.feedback()
	}
	return nil
}

// take is given what the decoder has made.
func (r *reader) take(batch cdc.Batch) {
	if batch.Position != "" {
		r.put, _ = pglogrepl.ParseLSN(string(batch.Position))
	}
	r.backlog.put(batch)
}

// feedback tells the server what was acknowledged, and asks for its answer. Where
// all is acknowledged that it sent, that is all up to where it has read: the log
// of other tables is released too.
func (r *reader) feedback() error {
	flushed := pglogrepl.LSN(r.acked.Load())
	if flushed >= r.put && !r.decoder.within {
		flushed = max(flushed, r.idle)
	}
	flushed = max(flushed, r.told)
	if err := r.conn.Conn().SetWriteDeadline(now().Add(sending)); err != nil {
		return err
	}
	err := pglogrepl.SendStandbyStatusUpdate(context.Background(), r.conn, pglogrepl.StandbyStatusUpdate{
		WALWritePosition: flushed, WALFlushPosition: flushed, WALApplyPosition: flushed,
		ClientTime: now(), ReplyRequested: !r.backlog.full(),
	})
	if err != nil {
		return err
	}
	r.told = flushed
	return r.arm()
}

// arm lets reading end when the next feedback is due.
func (r *reader) arm() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.awake {
		return nil
	}
	r.next = now().Add(r.every)
	return r.conn.Conn().SetReadDeadline(r.next)
}

// wake lets reading end at once. It is called by another goroutine.
func (r *reader) wake() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.awake = true
	_ = r.conn.Conn().SetReadDeadline(past)
}

// finish says goodbye: with the last feedback, and an end of the copying that the
// server answers when it has freed the slot. In the middle of a large transaction
// it does not, and notices that nobody is there.
func (r *reader) finish() error {
	if err := r.feedback(); err != nil {
		return errClosed
	}
	if err := r.conn.Conn().SetDeadline(now().Add(farewell)); err != nil {
		return errClosed
	}
	r.conn.Frontend().Send(&pgproto3.CopyDone{})
	if r.conn.Frontend().Flush() != nil {
		return errClosed
	}
	for {
		message, err := r.conn.ReceiveMessage(context.Background())
		if err != nil {
			return errClosed
		}
		switch message.(type) {
		case *pgproto3.ReadyForQuery, *pgproto3.ErrorResponse:
			return errClosed
		}
	}
}
