package memlog

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/waybillhq/waybill/cdc"
)

// Source returns a source of the log. Those of one name share a slot.
func (l *Log) Source(name string) cdc.Source { return &source{log: l, name: name} }

type source struct {
	log  *Log
	name string
}

func (s *source) Name() string { return s.name }

// VisibleInOrder says that a store which logs as it commits has no gap between.
func (s *source) VisibleInOrder() bool { return true }

func (s *source) Setup(ctx context.Context) error {
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	if s.log.refusal != nil {
		return s.log.refusal
	}
	return ctx.Err()
}

func (s *source) Open(ctx context.Context, from cdc.Position) (cdc.Stream, error) {
	l := s.log
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if l.refusal != nil {
		return nil, l.refusal
	}
	own := l.slots[s.name]
	if own != nil && own.holder != nil {
		return nil, cdc.Busy(errors.New("another stream is open"))
	}
	if from == "" {
		if own == nil || own.lost {
			own = &slot{place: l.end()}
		}
	} else {
		place, err := s.place(from)
		switch {
		case own == nil:
			return nil, cdc.Lost(cdc.LostSlot, fmt.Errorf("slot %s does not exist", s.name), "")
		case own.lost:
			return nil, cdc.Lost(cdc.WALRemoved, fmt.Errorf("slot %s lost what it needs", s.name), "")
		case err != nil:
			return nil, err
		}
		own.place = max(own.place, place)
	}
	if l.slots == nil {
		l.slots = make(map[string]*slot)
	}
	l.slots[s.name] = own
	st := &stream{log: l, slot: own, next: own.place, ended: make(chan struct{})}
	own.holder = st
	return st, nil
}

// place reads a position.
func (s *source) place(p cdc.Position) (int, error) {
	life, text, _ := strings.Cut(string(p), "/")
	place, err := strconv.Atoi(text)
	if err != nil || life != strconv.Itoa(s.log.life) || place > s.log.end() {
		return 0, cdc.Lost(cdc.PositionUnknown, fmt.Errorf("the log has no position %q", p), "")
	}
	return place, nil
}

func (s *source) Mark(ctx context.Context, text string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.log.add(entry{mark: text})
	return nil
}

func (s *source) Status(context.Context) (cdc.Status, error) {
	l := s.log
	l.mu.Lock()
	defer l.mu.Unlock()
	status := cdc.Status{End: l.position(l.end()), LagBytes: -1, RetainedBytes: -1, LimitBytes: -1, Headroom: -1}
	switch own := l.slots[s.name]; {
	case own == nil:
		status.State = cdc.LostSlot
	case own.lost:
		status.State = cdc.WALRemoved
	default:
		status.State, status.Position = cdc.Waiting, l.position(own.place)
		status.LagBytes = int64(l.end() - own.place)
		status.RetainedBytes = status.LagBytes
		if own.holder != nil {
			status.State, status.Holder = cdc.Streaming, "this process"
		}
	}
	return status, nil
}

func (s *source) Drop(context.Context) error {
	l := s.log
	l.mu.Lock()
	defer l.mu.Unlock()
	own := l.slots[s.name]
	if own != nil && own.holder != nil {
		return cdc.Busy(errors.New("a stream is open"))
	}
	delete(l.slots, s.name)
	l.trim()
	return nil
}
