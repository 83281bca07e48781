package ops

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
	"github.com/waybillhq/waybill/store"
)

// sheet writes one event's trace, line by line.
type sheet struct {
	id        string
	elsewhere bool // another program is to send it
	trace     EventTrace
}

func (p *sheet) known(group, question, format string, args ...any) {
	p.trace.Lines = append(p.trace.Lines, TraceLine{Group: group, Question: question, Answer: fmt.Sprintf(format, args...), Known: true})
}

func (p *sheet) unknown(group, question, format string, args ...any) {
	p.trace.Lines = append(p.trace.Lines, TraceLine{Group: group, Question: question, Answer: "unknown, because " + fmt.Sprintf(format, args...)})
}

// unknownConsumer leaves all questions about a consumer open, for one reason.
func (p *sheet) unknownConsumer(group, format string, args ...any) {
	for _, question := range []string{"received?", "duplicated?", "applied?", "dead?"} {
		p.unknown(group, question, format, args...)
	}
}

func (p *sheet) identify(e *waybill.Event) {
	t := &p.trace
	t.Type, t.Topic, t.Key = e.Type, e.Topic, e.EffectiveKey()
	t.AggregateType, t.AggregateID, t.AggregateVersion = e.AggregateType, e.AggregateID, e.AggregateVersion
}

// noEvent answers the producer's questions about an event that only a
// consumer knows.
func (p *sheet) noEvent() {
	p.unknown("", "produced?", "the outbox has no such event")
	p.known("", "in the outbox?", "no: cleaned up, forgotten on delivery, or sent by another service")
	p.unknown("", "captured?", "the outbox has no such event")
	p.unknown("", "published?", "the outbox has no such event")
	p.known("", "dead?", "no: not in the outbox")
}

func (p *sheet) producer(t *store.Tracked) {
	if t.Event.OccurredAt.IsZero() {
		p.known("", "produced?", "inserted %s", stamp(t.CreatedAt))
	} else {
		p.known("", "produced?", "%s, inserted %s", stamp(t.Event.OccurredAt), stamp(t.CreatedAt))
	}
	p.outbox(t)
	defer p.producerDead(t.Row)
	switch {
	case t.Receipt != nil:
		p.settled(t.Receipt)
	case t.Row != nil:
		p.known("", "captured?", "not yet: no relay has confirmed it")
		p.unsettled(t.Row)
	case p.elsewhere:
		p.unknown("", "captured?", "another program reads it from the database's log")
		p.unknown("", "published?", "it was not found in its topic yet")
	default:
		p.unknown("", "captured?", "it has no receipt")
		p.unknown("", "published?", "it has neither queue row nor receipt")
	}
}

func (p *sheet) outbox(t *store.Tracked) {
	switch r := t.Row; {
	case t.Archived:
		p.known("", "in the outbox?", "in the archive, id %d, %s", t.ID, t.Status)
	case r != nil && t.Receipt != nil:
		p.known("", "in the outbox?", "id %d, %s again in lane %d: sent once before and queued anew", t.ID, t.Status, r.Lane)
	case r != nil:
		p.known("", "in the outbox?", "id %d, %s in lane %d for %s", t.ID, t.Status, r.Lane, round(r.Age))
	case t.Receipt == nil && p.elsewhere:
		p.known("", "in the outbox?", "id %d, handed over to another program", t.ID)
	case t.Receipt == nil:
		p.known("", "in the outbox?", "id %d, but never queued: nothing will send it (doctor finds and requeues such events)", t.ID)
	default:
		p.known("", "in the outbox?", "id %d, %s", t.ID, t.Status)
	}
}

func (p *sheet) settled(r *store.Receipt) {
	if r.Via == "" {
		p.unknown("", "captured?", "the receipt does not say how")
	} else {
		p.known("", "captured?", "by %s", r.Via)
	}
	note := ""
	if r.Note != "" {
		note = " (" + r.Note + ")"
	}
	switch {
	case r.Outcome == store.StatusSkipped:
		p.known("", "published?", "skipped %s by an operator, a marker went to %s%s", stamp(r.PublishedAt), orUnknown(r.PublishedTo), note)
	case r.PublishedTo == "":
		p.unknown("", "published?", "the receipt of %s names no place", stamp(r.PublishedAt))
	default:
		p.known("", "published?", "%s to %s%s", stamp(r.PublishedAt), r.PublishedTo, note)
	}
}

func (p *sheet) unsettled(r *store.Row) {
	failure := ""
	if r.LastErr != "" {
		failure = ": " + r.LastErr
	}
	switch {
	case r.Skip:
		p.known("", "published?", "no: an operator skipped it, its marker is due")
	case r.Status == store.StatusDead:
		p.known("", "published?", "no: DEAD after %s%s", attempts(r.Retries), failure)
	case r.Retries > 0 && r.RetryIn > 0:
		p.known("", "published?", "not yet: %s failed, next in %s%s", attempts(r.Retries), round(r.RetryIn), failure)
	case r.Retries > 0:
		p.known("", "published?", "not yet: %s failed, the next is due%s", attempts(r.Retries), failure)
	case r.Parked:
		p.known("", "published?", "not yet: it waits behind an earlier event of its key")
	default:
		p.known("", "published?", "not yet")
	}
}

func (p *sheet) producerDead(r *store.Row) {
	switch {
	case r == nil || r.Status != store.StatusDead:
		p.known("", "dead?", "no")
	case r.Skip:
		p.known("", "dead?", "no longer: it is skipped")
	default:
		p.known("", "dead?", "yes: DEAD in the outbox after %s", attempts(r.Retries))
	}
}

func (p *sheet) inbox(ctx context.Context, in groupsOf) {
	if in.Err != nil {
		p.unknownConsumer(in.Name, "inbox %s cannot be read: %v", in.Name, in.Err)
		return
	}
	if len(in.groups) == 0 {
		p.unknownConsumer(in.Name, "inbox %s has no consumer group yet", in.Name)
		return
	}
	consumed, err := in.Reader.FindConsumed(ctx, p.id)
	if err != nil {
		p.unknownConsumer(in.Name, "inbox %s cannot be read: %v", in.Name, err)
		return
	}
	for _, group := range in.groups {
		held, err := in.Reader.ListHeld(ctx, group, store.HeldFilter{EventID: p.id, Limit: 1})
		if err != nil {
			p.unknownConsumer(group, "inbox %s cannot be read: %v", in.Name, err)
			continue
		}
		p.group(in.Name, group, rowOf(consumed, group), held, in.progressOf(ctx, group, held))
		p.calls(ctx, in, group)
	}
}

// progressOf returns the version up to which a group has settled the aggregate
// of an event that waits; 0 also where that cannot be read.
func (in groupsOf) progressOf(ctx context.Context, group string, held []store.Held) int64 {
	if len(held) == 0 || held[0].State != store.HeldWaiting {
		return 0
	}
	found, err := in.Reader.FindProgress(ctx, group, []store.Aggregate{store.AggregateOf(&held[0].Event)})
	if err != nil || len(found) == 0 {
		return 0
	}
	return found[0].Version
}

func rowOf(rows []store.Consumed, group string) *store.Consumed {
	for i := range rows {
		if rows[i].Group == group {
			return &rows[i]
		}
	}
	return nil
}

func (p *sheet) group(inbox, group string, consumed *store.Consumed, held []store.Held, settled int64) {
	c := ConsumerTrace{EventID: p.id, Inbox: inbox, Group: group, State: NotSeen}
	switch {
	case consumed != nil:
		c.State, c.Duplicates = string(consumed.Outcome), consumed.Duplicates
		p.consumed(group, consumed)
	case len(held) > 0:
		c.State, c.Attempts, c.Error = string(held[0].State), held[0].Attempts, held[0].LastErr
		p.held(group, &held[0], settled)
	default:
		p.known(group, "received?", "no: neither consumed nor held")
		for _, question := range []string{"duplicated?", "applied?", "dead?"} {
			p.known(group, question, "no: not received")
		}
	}
	p.trace.Consumers = append(p.trace.Consumers, c)
}

func (p *sheet) consumed(group string, c *store.Consumed) {
	if p.trace.Type == "" {
		p.identify(&c.Event)
		p.trace.Topic = c.Topic
	}
	p.known(group, "received?", "from %s", broker.Place(c.Topic, c.Partition, c.Position))
	if c.Duplicates > 0 {
		p.known(group, "duplicated?", "%d further %s, absorbed", c.Duplicates, plural(c.Duplicates, "delivery", "deliveries"))
	} else {
		p.known(group, "duplicated?", "no")
	}
	switch c.Outcome {
	case store.Applied:
		p.known(group, "applied?", "yes, %s", stamp(c.ConsumedAt))
	case store.Stale:
		p.known(group, "applied?", "no: STALE, a newer version had been applied by %s", stamp(c.ConsumedAt))
	default:
		p.known(group, "applied?", "no: %s, %s", c.Outcome, stamp(c.ConsumedAt))
	}
	p.known(group, "dead?", "no")
}

func (p *sheet) held(group string, h *store.Held, settled int64) {
	if p.trace.Type == "" {
		p.identify(&h.Event)
		p.trace.Topic, p.trace.Key = h.Topic, h.Key
	}
	p.known(group, "received?", "from %s", broker.Place(h.Topic, h.Partition, h.Position))
	p.unknown(group, "duplicated?", "further deliveries of a held event are not counted")
	p.known(group, "applied?", "no")
	failure := ""
	if h.LastErr != "" {
		failure = ": " + firstLine(h.LastErr)
	}
	switch h.State {
	case store.HeldDead:
		p.known(group, "dead?", "yes: DEAD after %s%s", attempts(h.Attempts), failure)
		p.deadLetter(group, h)
	case store.HeldRetry:
		p.known(group, "dead?", "no: RETRY after %s, next in %s%s", attempts(h.Attempts), round(max(h.RetryIn, 0)), failure)
	case store.HeldWaiting:
		p.known(group, "dead?", "no: WAITING for version %d of its aggregate, since %s", settled+1, stamp(h.HeldAt))
	default:
		p.known(group, "dead?", "no: %s behind an earlier event of its key, since %s", h.State, stamp(h.HeldAt))
	}
}

// deadLetter says nothing of a letter of which nothing is known: most groups send
// none.
func (p *sheet) deadLetter(group string, h *store.Held) {
	switch {
	case h.DeadLetterNote != "":
		p.known(group, "dead letter?", "none: %s", firstLine(h.DeadLetterNote))
	case !h.DeadLetterAt.IsZero():
		p.known(group, "dead letter?", "sent %s", stamp(h.DeadLetterAt))
	}
}

// calls has a line for each call to another system.
func (p *sheet) calls(ctx context.Context, in groupsOf, group string) {
	reader, ok := in.Reader.(store.Effects)
	if !ok {
		return
	}
	calls, err := reader.ListEffects(ctx, group, p.id)
	if err != nil {
		p.unknown(group, "called?", "inbox %s cannot be read: %v", in.Name, err)
	}
	for i := range calls {
		c := viewCall(&calls[i])
		state := c.State
		if c.InDoubt {
			state += ", in doubt"
		}
		p.known(group, "called?", "%s: %s, key %s", c.Name, state, c.IdempotencyKey)
	}
}

// verdict says the whole in one sentence: the first obstacle on the way, or
// who applied it.
func verdict(t *store.Tracked, elsewhere bool, consumers []ConsumerTrace) string {
	if t != nil {
		switch {
		case t.Row != nil && t.Row.Status == store.StatusDead && !t.Row.Skip:
			return "dead in the outbox: it needs a decision, retry or skip"
		case t.Row != nil && t.Receipt == nil:
			return "waiting in the outbox to be sent"
		case t.Row == nil && t.Receipt == nil && elsewhere:
			if !slices.ContainsFunc(consumers, func(c ConsumerTrace) bool { return c.State != NotSeen }) {
				return "handed over to another program, and not found in its topic yet"
			}
		case t.Row == nil && t.Receipt == nil:
			return "stuck: it was never queued"
		case t.Receipt != nil && t.Receipt.Outcome == store.StatusSkipped:
			return "skipped by an operator"
		}
	}
	var said []string
	for _, c := range consumers {
		what := strings.ToLower(c.State)
		if c.State == NotSeen {
			what = "not received"
		}
		said = append(said, fmt.Sprintf("%s by %s", what, c.Group))
	}
	if len(said) == 0 {
		return "sent; no consumer is known"
	}
	return "sent; " + strings.Join(said, ", ")
}

func attempts(n int) string { return fmt.Sprintf("%d %s", n, plural(int64(n), "attempt", "attempts")) }

func orUnknown(text string) string {
	if text == "" {
		return "an unknown place"
	}
	return text
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}
