package ops

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
)

// Inbox is a consumer's database as [Trace] sees it.
type Inbox struct {
	Name   string // for people: "inventory"
	Reader store.HeldReader
	// Err says why there is no Reader: the trace then calls this inbox's answers
	// unknown instead of failing.
	Err error
}

// TraceQuery names one event, or all events of one key.
type TraceQuery struct {
	EventID string
	Key     string // event key or aggregate id
	Limit   int    // for Key: the newest so many; 0 means 100
}

// ErrNoEvent says that neither the outbox nor any inbox knows the event.
var ErrNoEvent = errors.New("no such event")

// TraceResult is the answer to a [TraceQuery]. Its JSON form is stable.
type TraceResult struct {
	Events []EventTrace `json:"events"` // lowest outbox id first
	More   bool         `json:"more"`   // older events of the key were left out
}

// EventTrace is the way of one event.
type EventTrace struct {
	EventID          string          `json:"event_id"`
	Type             string          `json:"type"`
	Topic            string          `json:"topic"`
	Key              string          `json:"key"`
	AggregateType    string          `json:"aggregate_type"`
	AggregateID      string          `json:"aggregate_id"`
	AggregateVersion int64           `json:"aggregate_version"`
	Verdict          string          `json:"verdict"` // the whole in one sentence
	Lines            []TraceLine     `json:"lines"`
	Next             []Cause         `json:"next"`      // what keeps it from going on, and what to do; never nil
	Consumers        []ConsumerTrace `json:"consumers"` // never nil
}

// TraceLine is one question and its answer.
type TraceLine struct {
	Group    string `json:"group,omitempty"` // for questions about one consumer
	Question string `json:"question"`
	Answer   string `json:"answer"`
	Known    bool   `json:"known"` // false: Answer says why it is not known
}

// ConsumerTrace is what one consumer group did with an event.
type ConsumerTrace struct {
	EventID    string `json:"-"`
	Inbox      string `json:"inbox"`
	Group      string `json:"group"`
	State      string `json:"state"` // APPLIED, STALE, SKIPPED, WAITING, BLOCKED, RETRY, DEAD, NOT_SEEN
	Duplicates int64  `json:"duplicates"`
	Attempts   int    `json:"attempts"`
	Error      string `json:"error,omitempty"`
}

// NotSeen is the State of a [ConsumerTrace] without any row.
const NotSeen = "NOT_SEEN"

// Trace follows an event, or the events of a key, through the outbox and the
// inboxes. It fails only where the outbox itself cannot be read. An event id
// that nobody knows is [ErrNoEvent]; a key without events is an empty result.
func Trace(ctx context.Context, outbox store.Inspector, inboxes []Inbox, query TraceQuery) (TraceResult, error) {
	t := tracer{outbox: outbox, inboxes: readInboxes(ctx, inboxes)}
	t.cut, t.external = aboveCut(ctx, outbox)
	if query.EventID != "" {
		return t.event(ctx, outbox, query.EventID)
	}
	limit := query.Limit
	if limit <= 0 {
		limit = 100
	}
	found, err := outbox.Find(ctx, store.Filter{Key: query.Key, Limit: limit + 1, Newest: true})
	if err != nil {
		return TraceResult{}, err
	}
	result := TraceResult{Events: []EventTrace{}, More: len(found) > limit}
	found = found[:min(len(found), limit)]
	slices.Reverse(found)
	for i := range found {
		result.Events = append(result.Events, t.trace(ctx, &found[i], found[i].Event.ID))
	}
	return result, nil
}

type tracer struct {
	outbox  store.Inspector
	inboxes []groupsOf
	// external: what is above the cut is another program's to send.
	external bool
	cut      int64
}

// elsewhere reports whether another program is to send an event.
func (t *tracer) elsewhere(tracked *store.Tracked) bool {
	return t.external && tracked != nil && tracked.ID > t.cut && !tracked.Archived
}

// groupsOf is an inbox with its groups, read once for all events.
type groupsOf struct {
	Inbox
	groups []string
}

func readInboxes(ctx context.Context, inboxes []Inbox) []groupsOf {
	read := make([]groupsOf, 0, len(inboxes))
	for _, in := range inboxes {
		g := groupsOf{Inbox: in}
		if g.Err == nil {
			g.groups, g.Err = in.Reader.Groups(ctx)
		}
		read = append(read, g)
	}
	return read
}

func (t *tracer) event(ctx context.Context, outbox store.Inspector, id string) (TraceResult, error) {
	found, err := outbox.Find(ctx, store.Filter{EventIDs: []string{id}})
	if err != nil {
		return TraceResult{}, err
	}
	var tracked *store.Tracked
	if len(found) > 0 {
		tracked = &found[0]
	}
	event := t.trace(ctx, tracked, id)
	seen := slices.ContainsFunc(event.Consumers, func(c ConsumerTrace) bool { return c.State != NotSeen })
	if tracked == nil && !seen {
		return TraceResult{Events: []EventTrace{}}, &waybill.Error{
			Op: "trace", Key: id, Err: ErrNoEvent,
			Hint: "its transaction rolled back, it was cleaned up or forgotten, or the id is wrong; whether there should be one, waybill reconcile tells",
		}
	}
	return TraceResult{Events: []EventTrace{event}}, nil
}

func (t *tracer) trace(ctx context.Context, tracked *store.Tracked, id string) EventTrace {
	p := sheet{id: id, elsewhere: t.elsewhere(tracked), trace: EventTrace{EventID: id, Consumers: []ConsumerTrace{}}}
	if tracked != nil {
		p.identify(&tracked.Event)
		p.producer(tracked)
	} else {
		p.noEvent()
	}
	for _, in := range t.inboxes {
		p.inbox(ctx, in)
	}
	if len(t.inboxes) == 0 {
		p.unknownConsumer("", "no inbox is configured")
	}
	p.unknown("", "read model?", "no check names the read model of this event")
	p.trace.Verdict = verdict(tracked, p.elsewhere, p.trace.Consumers)
	p.trace.Next = t.next(ctx, tracked, p.trace.Consumers)
	return p.trace
}

// stamp is how traces write a time.
func stamp(at time.Time) string { return at.UTC().Format("2006-01-02 15:04:05.000Z") }
