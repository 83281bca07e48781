package mybinlog

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/waybillhq/waybill/cdc"
)

const (
	// queueLength bounds what is read ahead, in batches.
	queueLength = 4
	// quiet is how long a position alone waits to be told.
	quiet = 250 * time.Millisecond
	// holdLimit is how long a prepared branch keeps the position before it. After
	// that its ids are known to this stream alone.
	holdLimit = 10 * time.Minute
)

var errClosed = errors.New("the stream is closed")

// stream hands over what the decoder reads. The decoder waits where the queue
// is full, and the server with it.
type stream struct {
	// shut ends what the stream does besides: reading, asking the catalogue,
	// keeping the lock.
	shut func(ctx context.Context)

	mu     sync.Mutex
	queue  []entry
	place  place // after the last transaction of the queue
	holds  map[string]hold
	acked  cdc.Position
	seen   progress
	err    error
	closed bool

	changed chan struct{} // for Next
	space   chan struct{} // for the decoder
	done    chan struct{} // closed by Close
}

// entry is a batch of the queue. Its position is written when it leaves the
// queue, or when another comes after it.
type entry struct {
	cdc.Batch
	whole bool
	since time.Time
}

// hold is a prepared branch whose ids were not told yet.
type hold struct {
	before place
	since  time.Time
}

// progress is how far the log was read, for people.
type progress struct {
	file      string
	position  uint64
	committed time.Time
}

func newStream(from place) *stream {
	return &stream{
		place: from, holds: make(map[string]hold),
		changed: make(chan struct{}, 1), space: make(chan struct{}, 1), done: make(chan struct{}),
	}
}

// Next returns what was read, whole transactions together as far as they fit.
func (s *stream) Next(ctx context.Context) (cdc.Batch, error) {
	for {
		batch, wait, err := s.take()
		if wait == 0 || err != nil {
			return batch, err
		}
		timer, stop := after(wait)
		select {
		case <-s.changed:
		case <-timer:
		case <-ctx.Done():
			stop()
			return cdc.Batch{}, ctx.Err()
		}
		stop()
	}
}

// take returns the first batch of the queue, or how long to wait for one.
func (s *stream) take() (batch cdc.Batch, wait time.Duration, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return batch, 0, errClosed
	case len(s.queue) == 0:
		return batch, time.Hour, s.err
	}
	first := s.queue[0]
	if len(s.queue) == 1 && s.err == nil && first.bare() {
		if wait = quiet - now().Sub(first.since); wait > 0 {
			return batch, wait, nil
		}
	}
	if len(s.queue) == 1 && first.whole {
		first.Position = s.position()
	}
	s.queue = s.queue[1:]
	signal(s.space)
	return first.Batch, 0, nil
}

// bare reports whether the batch says nothing but that the log went on.
func (e *entry) bare() bool {
	return len(e.IDs) == 0 && len(e.Marks) == 0 && e.Truncates == 0 && e.Undecodable == 0
}

// position is where a stream would have to go on to lose nothing.
func (s *stream) position() cdc.Position {
	var oldest *hold
	for name, one := range s.holds {
		if !s.seen.committed.IsZero() && s.seen.committed.Sub(one.since) > holdLimit {
			delete(s.holds, name)
			continue
		}
		if oldest == nil || one.since.Before(oldest.since) {
			oldest = &one
		}
	}
	if oldest != nil {
		return cdc.Position(oldest.before.String())
	}
	return cdc.Position(s.place.String())
}

// put adds a piece to the queue. It waits for space, and fails when the stream
// is closed.
func (s *stream) put(p piece) error {
	for {
		if done, err := s.tryPut(p); done || err != nil {
			return err
		}
		select {
		case <-s.space:
		case <-s.done:
			return errClosed
		}
	}
}

func (s *stream) tryPut(p piece) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false, errClosed
	}
	var last *entry
	if n := len(s.queue); n > 0 {
		last = &s.queue[n-1]
	}
	if last == nil || !last.takes(p) {
		if len(s.queue) >= queueLength {
			return false, nil
		}
		if last != nil && last.whole {
			last.Position = s.position()
		}
		s.queue = append(s.queue, entry{since: now()})
		last = &s.queue[len(s.queue)-1]
	}
	last.IDs = append(last.IDs, p.ids...)
	last.Marks = append(last.Marks, p.marks...)
	last.Truncates += p.truncates
	last.Undecodable += p.undecodable
	last.whole = p.whole
	if p.whole {
		last.Committed = p.committed
		s.finish(p)
	}
	signal(s.changed)
	return true, nil
}

// finish moves the place on, with the transaction that ends.
func (s *stream) finish(p piece) {
	if p.prepared != "" {
		s.holds[p.prepared] = hold{before: s.place.clone(), since: p.committed}
	}
	delete(s.holds, p.resolved)
	s.place.add(p.id)
	if !p.committed.IsZero() {
		s.seen.committed = p.committed
	}
}

// takes reports whether a piece may be told together with what there is. A batch
// that ends within a transaction has no position, so none begins after whole
// ones; and what follows a TRUNCATE may have ids of before.
func (e *entry) takes(p piece) bool {
	const marks = 64
	return len(e.IDs)+len(p.ids) <= cdc.MaxIDs &&
		(p.whole || !e.whole) &&
		(e.Truncates == 0 || len(p.ids) == 0) &&
		len(e.Marks) < marks
}

// at notes the place in the server's files.
func (s *stream) at(file string, position uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if file != "" {
		s.seen.file = file
	}
	s.seen.position = position
}

// fail ends the stream, once what was read is taken.
func (s *stream) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
	}
	signal(s.changed)
}

// Ack notes the position. The server keeps none for its readers.
func (s *stream) Ack(position cdc.Position) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.acked = position
}

// Close ends the connection and gives the lock back.
func (s *stream) Close(ctx context.Context) error {
	s.mu.Lock()
	closed := s.closed
	s.closed = true
	if !closed {
		close(s.done)
	}
	signal(s.changed)
	s.mu.Unlock()
	if !closed {
		s.shut(ctx)
	}
	return nil
}

// reached is the place up to which the log was read.
func (s *stream) reached() place {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.place.clone()
}

func (s *stream) look() (progress, cdc.Position, cdc.Position) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen, s.position(), s.acked
}

func signal(channel chan struct{}) {
	select {
	case channel <- struct{}{}:
	default:
	}
}
