package reconcile

import (
	"context"
	"fmt"
	"strings"

	"github.com/waybillhq/waybill/store"
)

// Consumer is the inbox that feeds the read model.
type Consumer struct {
	Database string      `yaml:"database"`
	Group    string      `yaml:"group"`
	Names    store.Names `yaml:"-"`
}

// consumed asks the inbox about events: settled ones first, then held ones,
// which count.
func (t *tables) consumed(ctx context.Context, ids []string) (map[string]Consumed, error) {
	if t.check.Consumer == nil || len(ids) == 0 {
		return nil, nil
	}
	ctx, cancel := t.limit(ctx)
	defer cancel()
	known := make(map[string]Consumed)
	err := t.consumer.snapshot(ctx, func(q queryer) error {
		const batch = 500
		for len(ids) > 0 {
			n := min(batch, len(ids))
			if err := scan(ctx, q, t.settled(ids[:n]), func(_ []column, got []any) error {
				known[textAt(got, 0)] = Consumed{Fate: Fate(textAt(got, 1))}
				return nil
			}); err != nil {
				return err
			}
			if err := scan(ctx, q, t.held(ids[:n]), func(types []column, got []any) error {
				known[textAt(got, 0)] = Consumed{
					Fate: Fate(textAt(got, 1)), Since: timeAt(types, got, 2), Error: textAt(got, 3), BehindDead: markAt(types, got, 4),
				}
				return nil
			}); err != nil {
				return err
			}
			ids = ids[n:]
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("consumer: %w", err)
	}
	return known, nil
}

const settledSQL = `
SELECT event_id, outcome
FROM %s
WHERE consumer_group = %s AND event_id IN (%s)`

func (t *tables) settled(ids []string) *statement {
	s := &statement{dialect: t.consumer.Dialect}
	names := t.check.Consumer.Names.WithDefaults()
	return s.add(settledSQL, t.consumerTable(names.Consumed), s.bind(t.check.Consumer.Group), s.list(ids))
}

// heldSQL also asks whether an event of the same key before it is dead.
const heldSQL = `
SELECT h.event_id, h.state, h.held_at, h.last_error,
       EXISTS (SELECT 1 FROM %[1]s AS d
               WHERE d.consumer_group = h.consumer_group AND d.topic = h.topic AND d.event_key = h.event_key
                 AND d.seq < h.seq AND d.state = 'DEAD')
FROM %[1]s AS h
WHERE h.consumer_group = %[2]s AND h.event_id IN (%[3]s)`

func (t *tables) held(ids []string) *statement {
	s := &statement{dialect: t.consumer.Dialect}
	names := t.check.Consumer.Names.WithDefaults()
	return s.add(heldSQL, t.consumerTable(names.Held), s.bind(t.check.Consumer.Group), s.list(ids))
}

func (t *tables) consumerTable(name string) string {
	return t.consumer.Dialect.table(&Table{Schema: t.check.Consumer.Names.Schema, Table: name})
}

// list binds values for IN.
func (s *statement) list(values []string) string {
	places := make([]string, len(values))
	for i, value := range values {
		places[i] = s.bind(value)
	}
	return strings.Join(places, ", ")
}
