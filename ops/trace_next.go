package ops

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/waybillhq/waybill/store"
)

// next says what keeps an event from going on, nearest obstacle first, and what
// to do about it. An event that is where it should be has none.
func (t *tracer) next(ctx context.Context, tracked *store.Tracked, consumers []ConsumerTrace) []Cause {
	found := causes{all: []Cause{}}
	if tracked != nil {
		if ahead := tracked.Event.OccurredAt.Sub(tracked.CreatedAt); ahead > skew {
			found.add(Yellow, CauseClock, fixClock, "it occurred %s after it was inserted: its producer's clock is ahead", round(ahead))
		}
	}
	switch {
	case tracked == nil:
	case tracked.Row != nil:
		t.unsent(ctx, tracked, &found)
		if tracked.Receipt == nil {
			return found.all // no consumer can have it yet
		}
	case tracked.Receipt == nil && t.elsewhere(tracked):
		d, unconfirmed, err := readDelivery(ctx, t.outbox)
		if err == nil {
			judgeDelivery(d, unconfirmed, time.Minute, &found)
		}
	case tracked.Receipt == nil && !tracked.Archived:
		found.add(Red, CauseNotQueued, "waybill doctor --requeue --reason TEXT", "it was never queued: no queue row and no receipt")
		return found.all
	}
	for _, c := range consumers {
		t.consumerNext(ctx, &c, &found)
	}
	for _, in := range t.inboxes {
		if in.Err != nil {
			status := ConsumerStatus{Inbox: in.Name, Error: in.Err.Error()}
			status.judge(&found, 0)
		}
	}
	return found.all
}

// unsent explains an event with a queue row.
func (t *tracer) unsent(ctx context.Context, tracked *store.Tracked, found *causes) {
	row, id := tracked.Row, tracked.Event.ID
	if st, ok := t.outbox.(interface{ Ping(context.Context) error }); ok {
		unwritable(ctx, st, found)
	}
	if row.Status == store.StatusDead && !row.Skip {
		found.add(Yellow, CauseDead, deadFix(id, row.LastErr), "it is dead after %s: %s", attempts(row.Retries), firstLine(row.LastErr))
		return
	}
	t.relays(ctx, row.Lane, tracked.Event.Topic, found)
	switch {
	case row.Retries > 0:
		found.add(Yellow, CauseFailing, "read the error: if the event itself is wrong it ends DEAD, and you decide then; else it goes out by itself",
			"%s failed, the next in %s: %s", attempts(row.Retries), round(max(row.RetryIn, 0)), firstLine(row.LastErr))
	case row.Parked && !row.Skip:
		t.blocker(ctx, tracked, found)
	}
}

func deadFix(id, reason string) string {
	id = word(id)
	fix := fmt.Sprintf("waybill dead show %s; mend the cause, then waybill dead retry %s --reason TEXT; or give it up: waybill dead skip %s --reason TEXT", id, id, id)
	if strings.Contains(reason, "too large") {
		fix = "raise the broker's limit for one message or write a smaller event; " + fix
	}
	return fix
}

// relays looks at who should send it.
func (t *tracer) relays(ctx context.Context, lane int, topic string, found *causes) {
	leases, ok := t.outbox.(store.Leases)
	if !ok {
		return
	}
	all, err := leases.ListLeases(ctx)
	if err != nil {
		return
	}
	owner := ""
	for _, l := range all {
		if l.Lane == lane && l.ExpiresIn > 0 {
			owner = l.Owner
		}
	}
	if owner == "" {
		found.add(Red, CauseNoRelay, fixStartRelay, "no live relay owns its lane %d", lane)
		return
	}
	relays, err := leases.ListRelays(ctx)
	if err != nil {
		return
	}
	for _, r := range relays {
		if r.Owner != owner {
			continue
		}
		for _, reason := range relayReasons(r.Report) {
			if reason.Name == "topic" && !strings.HasPrefix(reason.Text, topic+":") {
				continue
			}
			name, fix := relayCause(reason.Name, reason.Text)
			found.add(string(reason.state), name, fix, "relay %s: %s: %s", r.Host, reason.Name, reason.Text)
		}
	}
}

// blocker names the earlier event of the key that holds this one back.
func (t *tracer) blocker(ctx context.Context, tracked *store.Tracked, found *causes) {
	filter := store.Filter{Key: tracked.Event.EffectiveKey(), Topic: tracked.Event.Topic, Limit: page}
	for _, filter.Status = range []store.Status{store.StatusDead, store.StatusPending} {
		earlier, err := t.outbox.Find(ctx, filter)
		if err != nil {
			return
		}
		for i := range earlier {
			e := &earlier[i]
			if e.ID >= tracked.ID || e.Row == nil || e.Event.EffectiveKey() != filter.Key {
				continue
			}
			if e.Row.Status == store.StatusDead && !e.Row.Skip {
				found.add(Yellow, CauseDead, deadFix(e.Event.ID, e.Row.LastErr), "it waits behind %s of its key, which is dead: %s", e.Event.ID, firstLine(e.Row.LastErr))
				return
			}
			if e.Row.Retries > 0 {
				found.add(Yellow, CauseFailing, "waybill trace "+word(e.Event.ID), "it waits behind %s of its key, which fails: %s", e.Event.ID, firstLine(e.Row.LastErr))
				return
			}
		}
	}
}

// consumerNext explains an event that a group has not applied.
func (t *tracer) consumerNext(ctx context.Context, c *ConsumerTrace, found *causes) {
	show := fmt.Sprintf("waybill held show %s --group %s; ", word(c.EventID), word(c.Group))
	verb := func(name string) string {
		return fmt.Sprintf("waybill held %s %s --group %s --reason TEXT", name, word(c.EventID), word(c.Group))
	}
	switch c.State {
	case string(store.HeldDead):
		found.add(Yellow, CauseConsumerDead, show+"mend the cause, then "+verb("retry")+"; or give it up: "+verb("skip"),
			"group %s holds it DEAD after %s: %s", c.Group, attempts(c.Attempts), firstLine(c.Error))
	case string(store.HeldRetry):
		found.add(Yellow, CauseConsumerRetrying, show+"it is tried again by itself; at once: "+verb("retry"),
			"group %s fails with it, %s so far: %s", c.Group, attempts(c.Attempts), firstLine(c.Error))
	case string(store.HeldWaiting):
		found.add(Yellow, CauseConsumerWaiting, "send the missing version again (waybill replay --key KEY), or "+verb("release"),
			"group %s waits for a lower version of its aggregate", c.Group)
	case string(store.HeldBlocked):
		found.add(Yellow, CauseConsumerDead, t.before(ctx, c), "group %s keeps it behind an earlier event of its key", c.Group)
	case NotSeen:
		status := t.group(ctx, c)
		if status.stopped() {
			found.add(Yellow, CauseConsumerStopped, "start the service that consumes as group "+c.Group, "group %s has no live reader", c.Group)
		}
	}
}

func (t *tracer) group(ctx context.Context, c *ConsumerTrace) ConsumerStatus {
	for _, in := range t.inboxes {
		if in.Name == c.Inbox {
			return readGroup(ctx, in.Inbox, c.Group)
		}
	}
	return ConsumerStatus{}
}

// before names the held event that a BLOCKED one is behind.
func (t *tracer) before(ctx context.Context, c *ConsumerTrace) string {
	list := "waybill held list --group " + word(c.Group)
	for _, in := range t.inboxes {
		if in.Name != c.Inbox {
			continue
		}
		own, err := in.Reader.ListHeld(ctx, c.Group, store.HeldFilter{EventID: c.EventID, Limit: 1})
		if err != nil || len(own) == 0 {
			return list
		}
		held, err := in.Reader.ListHeld(ctx, c.Group, store.HeldFilter{Key: own[0].Key, Limit: page})
		if err != nil {
			return list
		}
		for _, h := range held {
			if h.State != store.HeldBlocked && h.Topic == own[0].Topic {
				return fmt.Sprintf("it is behind %s (%s): waybill trace %s", h.Event.ID, h.State, word(h.Event.ID))
			}
		}
		return list + " --key " + word(own[0].Key)
	}
	return list
}
