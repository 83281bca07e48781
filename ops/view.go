package ops

import (
	"encoding/json"
	"time"
	"unicode/utf8"

	"github.com/waybillhq/waybill/store"
)

// EventView is an event of the outbox as people and programs read it. Its JSON
// form is stable.
type EventView struct {
	ID               int64             `json:"id"`
	EventID          string            `json:"event_id"`
	Type             string            `json:"type"`
	Topic            string            `json:"topic"`
	Key              string            `json:"key"`
	TenantID         string            `json:"tenant_id,omitempty"`
	AggregateType    string            `json:"aggregate_type"`
	AggregateID      string            `json:"aggregate_id"`
	AggregateVersion int64             `json:"aggregate_version"`
	Status           string            `json:"status"`
	CreatedAt        time.Time         `json:"created_at"`
	OccurredAt       time.Time         `json:"occurred_at,omitzero"`
	Attempts         int               `json:"attempts"`
	RetryInSeconds   float64           `json:"retry_in_seconds,omitempty"`
	Skip             bool              `json:"skip,omitempty"` // a marker is due in its place
	FirstError       string            `json:"first_error,omitempty"`
	LastError        string            `json:"last_error,omitempty"`
	ContentType      string            `json:"content_type,omitempty"`
	Headers          map[string]string `json:"headers,omitempty"`
	DataBytes        int               `json:"data_bytes"`
	Data             *DataView         `json:"data,omitempty"` // where it was asked for
}

// DataView is a payload: as JSON where it is JSON, as text where it is text, else
// in base64.
type DataView struct {
	JSON  json.RawMessage `json:"json,omitempty"`
	Text  string          `json:"text,omitempty"`
	Bytes []byte          `json:"bytes,omitempty"`
}

func viewData(data []byte) *DataView {
	switch {
	case json.Valid(data):
		return &DataView{JSON: data}
	case utf8.Valid(data):
		return &DataView{Text: string(data)}
	}
	return &DataView{Bytes: data}
}

// ViewEvent returns the view of an event, with its data if asked for.
func ViewEvent(t *store.Tracked, data bool) EventView {
	e := &t.Event
	v := EventView{
		ID: t.ID, EventID: e.ID, Type: e.Type, Topic: e.Topic, Key: e.EffectiveKey(), TenantID: e.TenantID,
		AggregateType: e.AggregateType, AggregateID: e.AggregateID, AggregateVersion: e.AggregateVersion,
		Status: string(t.Status), CreatedAt: t.CreatedAt.UTC(), ContentType: e.ContentType, Headers: e.Headers, DataBytes: len(e.Data),
	}
	if !e.OccurredAt.IsZero() {
		v.OccurredAt = e.OccurredAt.UTC()
	}
	if r := t.Row; r != nil {
		v.Attempts, v.Skip, v.FirstError, v.LastError = r.Retries, r.Skip, r.FirstErr, r.LastErr
		if r.HasRetry && r.RetryIn > 0 {
			v.RetryInSeconds = seconds(r.RetryIn)
		}
	}
	if data {
		v.Data = viewData(e.Data)
	}
	return v
}

// HeldView is a held event as people and programs read it. Its JSON form is
// stable.
type HeldView struct {
	Seq              int64      `json:"seq"`
	Group            string     `json:"group"`
	EventID          string     `json:"event_id"`
	Type             string     `json:"type"`
	Topic            string     `json:"topic"`
	Key              string     `json:"key"`
	Partition        int32      `json:"partition"`
	Position         int64      `json:"position"`
	TenantID         string     `json:"tenant_id,omitempty"`
	AggregateType    string     `json:"aggregate_type"`
	AggregateID      string     `json:"aggregate_id"`
	AggregateVersion int64      `json:"aggregate_version"`
	State            string     `json:"state"`
	Attempts         int        `json:"attempts"`
	RetryInSeconds   float64    `json:"retry_in_seconds,omitempty"`
	HeldAt           time.Time  `json:"held_at"`
	LastFailedAt     time.Time  `json:"last_failed_at,omitzero"`
	FirstError       string     `json:"first_error,omitempty"`
	LastError        string     `json:"last_error,omitempty"`
	Stack            string     `json:"stack,omitempty"`
	DeadLetterAt     time.Time  `json:"dead_letter_at,omitzero"`    // when its dead letter was confirmed to be in its topic
	DeadLetterNote   string     `json:"dead_letter_note,omitempty"` // why it has no dead letter, and will have none
	RecordBytes      int        `json:"record_bytes"`
	Record           *DataView  `json:"record,omitempty"` // where it was asked for
	Calls            []CallView `json:"calls,omitempty"`  // to other systems; held show alone has them
}

// ViewHeld returns the view of a held event, with the record's value if asked
// for.
func ViewHeld(h *store.Held, record bool) HeldView {
	e := &h.Event
	v := HeldView{
		Seq: h.Seq, Group: h.Group, EventID: e.ID, Type: e.Type, Topic: h.Topic, Key: h.Key, Partition: h.Partition, Position: h.Position,
		TenantID: e.TenantID, AggregateType: e.AggregateType, AggregateID: e.AggregateID, AggregateVersion: e.AggregateVersion,
		State: string(h.State), Attempts: h.Attempts, HeldAt: h.HeldAt.UTC(), LastFailedAt: h.LastFailedAt,
		FirstError: h.FirstErr, LastError: h.LastErr, Stack: h.Stack, RecordBytes: len(h.Record.Value),
		DeadLetterNote: h.DeadLetterNote,
	}
	if !h.DeadLetterAt.IsZero() {
		v.DeadLetterAt = h.DeadLetterAt.UTC()
	}
	if h.RetryIn > 0 {
		v.RetryInSeconds = seconds(h.RetryIn)
	}
	if record {
		v.Record = viewData(h.Record.Value)
	}
	return v
}

// AuditView is an entry of the audit. Its JSON form is stable.
type AuditView struct {
	At     time.Time       `json:"at"`
	Actor  string          `json:"actor"`
	Verb   string          `json:"verb"`
	Target string          `json:"target"`
	Reason string          `json:"reason"`
	Before json.RawMessage `json:"before,omitempty"`
	After  json.RawMessage `json:"after,omitempty"`
}

// AuditFilter selects entries. All conditions that are set must hold.
type AuditFilter struct {
	Actor  string
	Verb   string // its beginning: "dead", "held retry"
	Target string
	Limit  int // 0 means 100
}

// ViewAudit returns the newest entries that the filter selects, newest first.
func ViewAudit(entries []store.AuditEntry, filter AuditFilter) []AuditView {
	limit := orDefault(filter.Limit, 100)
	views := []AuditView{}
	for _, e := range entries {
		if len(views) == limit {
			break
		}
		if filter.Actor != "" && filter.Actor != e.Actor || filter.Target != "" && filter.Target != e.Target ||
			len(e.Verb) < len(filter.Verb) || e.Verb[:len(filter.Verb)] != filter.Verb {
			continue
		}
		v := AuditView{At: e.At.UTC(), Actor: e.Actor, Verb: e.Verb, Target: e.Target, Reason: e.Reason}
		if json.Valid([]byte(e.Before)) {
			v.Before = json.RawMessage(e.Before)
		}
		if json.Valid([]byte(e.After)) {
			v.After = json.RawMessage(e.After)
		}
		views = append(views, v)
	}
	return views
}
