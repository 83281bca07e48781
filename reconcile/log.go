package reconcile

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/waybillhq/waybill/store"
)

// The events of one key that are kept in memory, from either end, and how many
// of them with their content: beyond that only versions and states matter.
const (
	keptEvents   = 5000
	keptContents = 64
)

// Outbox makes the outbox of this module the log: the events of one aggregate
// type. A key of one part is the aggregate id, one of two parts the tenant and
// the aggregate id. Columns are compared with members of the payload.
type Outbox struct {
	AggregateType string `yaml:"aggregate_type"`
	// Archive counts the events that a cleanup archived, too: of a key that
	// seems to differ, the archive is read after the log.
	Archive bool `yaml:"archive"`
	// Head counts the heads of events that are gone (store.MigrateOptions.Head):
	// of a key that seems to differ, the head is read with row and log anew. An
	// event that a cleanup may have removed, being older than LogRetention, or
	// that Forgets allows for, was settled and counts as sent. Another one that
	// is gone is MISSING_EVENT, cause row_gone.
	Head bool `yaml:"head" json:",omitempty"`
	// Forgets says that the relay removes events once they are settled.
	Forgets bool `yaml:"forgets" json:",omitempty"`

	Names store.Names `yaml:"-"` // of the tables, where not the usual ones
}

// fill sets what the check has left open.
func (o *Outbox) fill(log *Log, key []KeyPart) {
	names := o.Names.WithDefaults()
	for field, name := range map[*string]string{
		&log.Schema: names.Schema, &log.Table.Table: names.Status, &log.Version: "aggregate_version", &log.EventID: "event_id",
		&log.State: "status", &log.Queued: "queued", &log.CreatedAt: "created_at", &log.SentAt: "published_at",
		&log.Type: "event_type", &log.Payload: "payload",
	} {
		if *field == "" {
			*field = name
		}
	}
	log.Where = maps.Clone(log.Where)
	if log.Where == nil {
		log.Where = make(map[string]string)
	}
	log.Where["aggregate_type"] = o.AggregateType
	if len(log.Key) == 0 {
		log.Key = []string{"tenant_id", "aggregate_id"}[2-min(len(key), 2):]
	}
	if len(log.KeyStored) == 0 {
		for _, part := range key {
			stored := StoredNative
			if part.Type == KeyInteger || part.Type == KeyUUID {
				stored = StoredText
			}
			log.KeyStored = append(log.KeyStored, stored)
		}
	}
}

// eventRows reads the log of a range and groups it by key.
func (t *tables) eventRows(ctx context.Context, q queryer, r Range) ([]Keyed[[]Event], error) {
	log, d := t.check.Log, t.log.Dialect
	s := &statement{dialect: d}
	k := d.keys(&log.Table, t.kinds)
	p := projection{dialect: d, columns: slices.Clone(k.columns)}
	at := eventColumns{
		version: p.take(log.Version), id: p.take(log.EventID), state: p.take(log.State), queued: p.take(log.Queued),
		created: p.take(log.CreatedAt), sent: p.take(log.SentAt), kind: p.take(log.Type), payload: p.take(log.Payload),
		values: make([]int, len(t.check.Compare)),
	}
	for i := range at.values {
		at.values[i] = -1
		if log.Payload == "" {
			at.values[i] = p.take(t.check.Compare[i].in(t.check.Compare[i].Log))
		}
	}
	s.add("SELECT %s FROM %s", strings.Join(p.columns, ", "), d.table(&log.Table))
	k.where(s, r)
	filter(s, &log.Table)
	s.add(" ORDER BY %s, %s", k.orderBy(), d.quote(log.Version))
	for _, name := range []string{log.CreatedAt, log.EventID} {
		if name != "" {
			s.add(", %s", d.quote(name))
		}
	}
	var grouped []Keyed[[]Event]
	var kept history // of the key at hand
	err := scan(ctx, q, s, func(types []column, got []any) error {
		key, err := NewKey(t.kinds, got[:len(t.kinds)])
		if err != nil {
			return err
		}
		e, err := t.event(types, got, &at)
		if err != nil {
			return fmt.Errorf("key %s: %w", key, err)
		}
		if n := len(grouped); n == 0 || grouped[n-1].Key.Compare(key) != 0 {
			grouped = append(grouped, Keyed[[]Event]{Key: key})
			kept = history{sent: -1}
		}
		kept.add(e)
		grouped[len(grouped)-1].Item = kept.events
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("log: %w", err)
	}
	return grouped, nil
}

// history is what is kept of one key's events.
type history struct {
	events []Event
	sent   int // where the latest sent one is; -1 for nowhere
}

// add takes an event. The latest sent one is kept with its content, however many
// wait behind it: it is what the read model should show.
//
// Events mostly come in the order of their versions, but a database may sort NULL
// last, which counts as 0, and sorts numbers that are kept as text by their digits.
func (h *history) add(e Event) {
	at := len(h.events)
	for at > 0 && h.events[at-1].Version > e.Version {
		at--
	}
	h.events = slices.Insert(h.events, at, e)
	before := h.sent
	if before >= at {
		before++
	}
	if h.sent = before; e.State == StateSent && at > before {
		h.sent = at
	}
	early := len(h.events) - 1 - keptContents
	for _, i := range []int{before, at, early} {
		if i >= 0 && i <= early && i != h.sent {
			h.events[i].Values = nil
		}
	}
	if len(h.events) <= 2*keptEvents+keptContents {
		return
	}
	from, to := keptEvents, keptEvents+keptContents // the middle says least
	if h.sent >= from && h.sent < to {
		h.events[from], h.sent = h.events[h.sent], from
		from++
	} else if h.sent >= to {
		h.sent -= to - from
	}
	h.events = slices.Delete(h.events, from, to)
}

// eventColumns are the positions of an event's columns, -1 for none.
type eventColumns struct {
	version, id, state, queued, created, sent, kind, payload int
	values                                                   []int
}

func (t *tables) event(types []column, got []any, at *eventColumns) (Event, error) {
	log := t.check.Log
	e := Event{ID: textAt(got, at.id), Word: textAt(got, at.state), CreatedAt: timeAt(types, got, at.created), SentAt: timeAt(types, got, at.sent)}
	var err error
	if e.Version, err = versionOf(got[at.version]); err != nil {
		return e, err
	}
	if e.ID == "" {
		e.ID = "the event"
	}
	e.State = log.state(e.Word)
	if e.State == StatePending && at.queued >= 0 && !markAt(types, got, at.queued) {
		e.State = StateUnqueued
	}
	e.Delete = at.kind >= 0 && slices.Contains(log.Deletes, textAt(got, at.kind))
	e.Values = make([]Value, len(at.values))
	if at.payload < 0 {
		for i, position := range at.values {
			e.Values[i] = t.valueAt(types, got, position, i)
		}
		return e, nil
	}
	if len(at.values) == 0 || e.Delete {
		return e, nil
	}
	document, err := decodeJSON([]byte(textAt(got, at.payload)))
	for i := range at.values {
		c := &t.check.Compare[i]
		path := c.in(c.Log)
		if path == "" {
			continue
		}
		if err != nil {
			e.Values[i] = unread
			continue
		}
		if node, found := lookup(document, path); found {
			e.Values[i] = documentValue(node, t.as(column{digits: -1}, i))
		}
	}
	return e, nil
}
