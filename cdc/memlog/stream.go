package memlog

import (
	"context"
	"errors"

	"github.com/waybillhq/waybill/cdc"
)

type stream struct {
	log  *Log
	slot *slot
	next int // place of the next entry
	told int // ids of it that were told already

	ended chan struct{}
	err   error
}

var errClosed = errors.New("the stream is closed")

// fail ends the stream; the log is locked.
func (s *stream) fail(err error) {
	if s.err == nil {
		s.err = err
		close(s.ended)
	}
}

func (s *stream) Next(ctx context.Context) (cdc.Batch, error) {
	for {
		batch, wait, err := s.read()
		if err != nil || wait == nil {
			return batch, err
		}
		select {
		case <-ctx.Done():
			return cdc.Batch{}, ctx.Err()
		case <-s.ended:
		case <-wait:
		}
	}
}

// read takes what there is, or returns what to wait for.
func (s *stream) read() (batch cdc.Batch, wait <-chan struct{}, err error) {
	l := s.log
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.err != nil {
		return batch, nil, s.err
	}
	if s.next == l.end() || l.frozen {
		if l.grown == nil {
			l.grown = make(chan struct{})
		}
		return batch, l.grown, nil
	}
	for s.next < l.end() && len(batch.IDs) < cdc.MaxIDs {
		e := l.entries[s.next-l.first]
		if room := cdc.MaxIDs - len(batch.IDs); len(e.ids)-s.told > room {
			// A part of a transaction comes in a batch without a position.
			if s.told == 0 && batch.Position != "" {
				break
			}
			batch.IDs = append(batch.IDs, e.ids[s.told:s.told+room]...)
			s.told += room
			break
		}
		batch.IDs = append(batch.IDs, e.ids[s.told:]...)
		s.told = 0
		s.next++
		if e.mark != "" {
			batch.Marks = append(batch.Marks, e.mark)
		}
		if e.truncate {
			batch.Truncates++
		}
		batch.Undecodable += e.undecodable
		batch.Position, batch.Committed = l.position(s.next), e.at
	}
	return batch, nil, nil
}

func (s *stream) Ack(p cdc.Position) {
	l := s.log
	l.mu.Lock()
	defer l.mu.Unlock()
	place, err := (&source{log: l}).place(p)
	if err != nil || s.err != nil {
		return
	}
	s.slot.place = max(s.slot.place, place)
	l.trim()
}

func (s *stream) Close(context.Context) error {
	l := s.log
	l.mu.Lock()
	defer l.mu.Unlock()
	s.fail(errClosed)
	if s.slot.holder == s {
		s.slot.holder = nil
	}
	return nil
}
