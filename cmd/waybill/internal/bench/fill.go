package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/outbox"
	"github.com/waybillhq/waybill/store"
)

// source makes events: of keys in turn, each key's versions rising, with data of
// letters that do not compress much better than real ones.
type source struct {
	topic   string
	keys    int
	payload int
	prefix  string // of the keys
	next    int
	random  *rand.Rand
}

func newSource(topic string, o *Options) *source {
	return &source{topic: topic, prefix: aggregateType, keys: o.Keys, payload: o.Payload, random: rand.New(rand.NewPCG(1, 2))}
}

const (
	aggregateType = "order"
	eventType     = "order.changed"
	leastPayload  = len(payloadHead) + 20 + len(payloadTail)
	payloadHead   = `{"n":`
	payloadMiddle = `,"pad":"`
	payloadTail   = `,"pad":""}`
	letters       = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 -"
)

func (s *source) event() waybill.Event {
	n := s.next
	s.next++
	data := make([]byte, 0, s.payload)
	data = append(data, payloadHead...)
	data = strconv.AppendInt(data, int64(n), 10)
	data = append(data, payloadMiddle...)
	for len(data) < s.payload-2 {
		for bits, i := s.random.Uint64(), 0; i < 10 && len(data) < s.payload-2; i++ {
			data = append(data, letters[bits&63])
			bits >>= 6
		}
	}
	data = append(data, `"}`...)
	return waybill.Event{
		ID: waybill.NewID(), Type: eventType, Topic: s.topic, AggregateType: aggregateType,
		AggregateID: fmt.Sprintf("%s-%07d", s.prefix, n%s.keys), AggregateVersion: int64(n/s.keys) + 1, Data: data,
	}
}

func (s *source) events(n int) []waybill.Event {
	events := make([]waybill.Event, n)
	for i := range events {
		events[i] = s.event()
	}
	return events
}

const fillBatch = 1000 // events of one transaction

// fill appends n events and tidies up.
func (d *database) fill(ctx context.Context, from *source, n int) error {
	for n > 0 {
		part := min(n, fillBatch)
		if err := d.append(ctx, from.events(part)); err != nil {
			return err
		}
		n -= part
	}
	return d.tidy(ctx)
}

// append appends events in one transaction, in the database's best way.
func (d *database) append(ctx context.Context, events []waybill.Event) error {
	if d.pg != nil {
		tx, err := d.pg.Begin(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback(ctx) }()
		return outbox.NewCommitWriter(d.pg, nil).AppendCommit(ctx, tx, events...)
	}
	tx, err := d.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if err := outbox.NewWriter[store.SQLTx](d.plain, nil).Append(ctx, tx, events...); err != nil {
		return err
	}
	return tx.Commit()
}
