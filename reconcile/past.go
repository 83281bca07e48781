package reconcile

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/waybillhq/waybill"
)

// past is one event of a key as its consumer had it.
type past struct {
	event   waybill.Event
	version int64
	state   State
}

// past reads all events of a key in full, in order of version.
func (t *tables) past(ctx context.Context, q queryer, key Key) (all []past, err error) {
	log, d := t.check.Log, t.log.Dialect
	s := &statement{dialect: d}
	k := d.keys(&log.Table, t.kinds)
	p := projection{dialect: d, columns: slices.Clone(k.columns)}
	at := pastColumns{
		version: p.take(log.Version), id: p.take(log.EventID), state: p.take(log.State), created: p.take(log.CreatedAt),
		kind: p.take(log.Type), payload: p.take(log.Payload), values: make([]int, len(t.check.Compare)),
	}
	for i := range at.values {
		at.values[i] = -1
		if log.Payload == "" {
			at.values[i] = p.take(t.check.Compare[i].in(t.check.Compare[i].Log))
		}
	}
	if log.Outbox != nil {
		at.tenant, at.aggregateType, at.aggregateID = p.take("tenant_id"), p.take("aggregate_type"), p.take("aggregate_id")
		at.schema, at.topic, at.key = p.take("event_version"), p.take("topic"), p.take("event_key")
		at.contentType, at.headers, at.occurred = p.take("content_type"), p.take("headers"), p.take("occurred_at")
	}
	s.add("SELECT %s FROM %s", strings.Join(p.columns, ", "), d.table(&log.Table))
	k.where(s, Range{only: &key})
	filter(s, &log.Table)
	s.add(" ORDER BY %s", d.quote(log.Version))
	err = scan(ctx, q, s, func(types []column, got []any) error {
		one, err := t.pastEvent(key, types, got, &at)
		if err == nil {
			all = append(all, one)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("log: %w", err)
	}
	return all, nil
}

// pastColumns are the positions of what an event is made of, -1 for none.
type pastColumns struct {
	version, id, state, created, kind, payload         int
	tenant, aggregateType, aggregateID                 int // these of the outbox alone
	schema, topic, key, contentType, headers, occurred int
	values                                             []int
}

func (t *tables) pastEvent(key Key, types []column, got []any, at *pastColumns) (past, error) {
	e := waybill.Event{ID: textAt(got, at.id), Type: textAt(got, at.kind), OccurredAt: timeAt(types, got, at.created)}
	version, err := versionOf(got[at.version])
	if err != nil {
		return past{}, err
	}
	e.AggregateVersion = version
	one := past{version: version, state: t.check.Log.state(textAt(got, at.state))}
	if t.check.Log.Outbox == nil {
		e.AggregateID = (Key{parts: key.parts[len(key.parts)-1:]}).String()
		if len(key.parts) > 1 {
			e.TenantID = (Key{parts: key.parts[:1]}).String()
		}
		e.Key, e.ContentType = e.AggregateID, "application/json"
	} else {
		e.TenantID, e.AggregateType, e.AggregateID = textAt(got, at.tenant), textAt(got, at.aggregateType), textAt(got, at.aggregateID)
		e.Topic, e.Key, e.ContentType = textAt(got, at.topic), textAt(got, at.key), textAt(got, at.contentType)
		e.OccurredAt = timeAt(types, got, at.occurred)
		schema, err := versionOf(got[at.schema])
		if err != nil {
			return past{}, err
		}
		e.SchemaVersion = int(schema)
		if err := e.UnmarshalHeaders([]byte(textAt(got, at.headers))); err != nil {
			return past{}, fmt.Errorf("event %s: %w", e.ID, err)
		}
	}
	switch {
	case at.payload >= 0:
		e.Data = []byte(textAt(got, at.payload))
	default:
		content := make(map[string]Value)
		for i, position := range at.values {
			if position >= 0 {
				content[t.check.Compare[i].Name] = t.valueAt(types, got, position, i)
			}
		}
		if e.Data, err = json.Marshal(content); err != nil {
			return past{}, err
		}
	}
	one.event = e
	return one, nil
}

// joinPast sorts events by version, each once.
func joinPast(a, b []past) []past {
	seen := make(map[string]bool, len(a))
	for i := range a {
		seen[a[i].event.ID] = true
	}
	for i := range b {
		if !seen[b[i].event.ID] {
			a = append(a, b[i])
		}
	}
	slices.SortStableFunc(a, func(x, y past) int { return cmp.Compare(x.version, y.version) })
	return a
}
