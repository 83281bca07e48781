package ops

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
)

// write finds out whether the database can be written: a full disk or a standby
// reads well.
func (d *doctor) write(ctx context.Context) error {
	var found causes
	unwritable(ctx, d.store, &found)
	if err := ctx.Err(); err != nil {
		return err
	}
	e := Examination{Check: CheckWrite, OK: true, Detail: "the database can be written"}
	for _, c := range found.all {
		e.OK, e.Detail, e.Hint = false, c.Text, c.Fix
	}
	d.found(e)
	return nil
}

// unwritable says why a database that answers cannot be written.
func unwritable(ctx context.Context, st interface{ Ping(context.Context) error }, found *causes) {
	err := st.Ping(ctx)
	if err == nil {
		return
	}
	fix := "free disk space, or lead the DSN to the writable server; nothing is lost, and relays go on by themselves"
	var known *waybill.Error
	if errors.As(err, &known) && known.Hint != "" {
		fix = known.Hint
		err = &waybill.Error{Op: known.Op, Key: known.Key, Err: known.Err}
	}
	found.add(Red, CauseReadOnly, fix, "the database cannot be written: %s", firstLine(err.Error()))
}

// relays tells what live relays say of the broker and of the database.
func (d *doctor) relays(ctx context.Context) error {
	relays, err := d.store.ListRelays(ctx)
	if err != nil {
		return err
	}
	live := 0
	for _, r := range relays {
		if r.ExpiresIn <= 0 {
			continue
		}
		live++
		for _, reason := range relayReasons(r.Report) {
			_, fix := relayCause(reason.Name, reason.Text)
			d.found(Examination{Check: CheckRelays, Detail: fmt.Sprintf("relay %s: %s: %s", r.Host, reason.Name, reason.Text), Hint: fix})
		}
	}
	if live > 0 {
		d.found(Examination{Check: CheckRelays, OK: true, Detail: fmt.Sprintf("%d running", live)})
	}
	return nil
}

func (d *doctor) dead(ctx context.Context) error {
	dead, more, err := ListDead(ctx, d.store, DeadFilter{Limit: d.config.Limit})
	if err != nil {
		return err
	}
	e := Examination{Check: CheckDead, OK: len(dead) == 0, Detail: "none"}
	if !e.OK {
		for _, t := range dead {
			e.EventIDs = append(e.EventIDs, t.Event.ID)
		}
		e.More = more
		e.Detail = atLeast(len(dead), more, "event") + " will not be sent without a decision; the first: " + firstLine(dead[0].Row.LastErr)
		e.Hint = fixDead
	}
	d.found(e)
	return nil
}

// pending names the oldest event that waits, where it waits too long, and what
// fails.
func (d *doctor) pending(ctx context.Context) error {
	limit := orDefault(d.config.MaxPendingAge, time.Minute)
	waiting, err := d.store.Find(ctx, store.Filter{Status: store.StatusPending, Limit: page})
	if err != nil {
		return err
	}
	failing := Examination{Check: CheckPending}
	var first string
	for i := range waiting {
		row := waiting[i].Row
		if row == nil {
			continue
		}
		if limit > 0 && row.Age > limit && first == "" {
			first = waiting[i].Event.ID
			d.found(Examination{
				Check: CheckPending, EventIDs: []string{first}, Hint: "waybill trace " + word(first),
				Detail: fmt.Sprintf("%s waits for %s, limit %s", first, round(row.Age), limit),
			})
		}
		if row.Retries > 0 {
			if len(failing.EventIDs) == 0 {
				failing.Detail = firstLine(row.LastErr)
			}
			if len(failing.EventIDs) < d.config.Limit {
				failing.EventIDs = append(failing.EventIDs, waiting[i].Event.ID)
			}
		}
	}
	if n := len(failing.EventIDs); n > 0 {
		failing.Detail = fmt.Sprintf("%s and will be tried again; the first: %s", atLeast(n, false, "event")+" failed", failing.Detail)
		failing.Hint = "waybill trace " + word(failing.EventIDs[0])
		d.found(failing)
	} else if first == "" {
		d.found(Examination{Check: CheckPending, OK: true, Detail: "none waits too long or fails"})
	}
	return nil
}

// skew is the difference between two clocks that people would want to know of.
const skew = 30 * time.Second

// clock compares the producers' clocks, and this process's, with the
// database's. Leases and schedules run by the database's alone, so a wrong
// clock misleads people and not the relay.
func (d *doctor) clock(ctx context.Context) error {
	newest, err := d.store.Find(ctx, store.Filter{Newest: true, Limit: page})
	if err != nil {
		return err
	}
	e := Examination{Check: CheckClock, OK: true, Detail: "no event is from the future"}
	for i := range newest {
		t := &newest[i]
		if ahead := t.Event.OccurredAt.Sub(t.CreatedAt); ahead > skew {
			e.OK, e.EventIDs = false, []string{t.Event.ID}
			e.Detail = fmt.Sprintf("%s occurred %s after it was inserted: the clock of its producer is ahead of the database's", t.Event.ID, round(ahead))
			e.Hint = fixClock
			break
		}
	}
	d.found(e)
	if d.config.Now == nil {
		return nil
	}
	for i := range newest {
		if t := &newest[i]; t.Row != nil {
			d.ownClock(d.config.Now().Sub(t.CreatedAt.Add(t.Row.Age)))
			break
		}
	}
	return nil
}

func (d *doctor) ownClock(ahead time.Duration) {
	if ahead.Abs() <= skew {
		return
	}
	d.found(Examination{
		Check: CheckClock, Detail: fmt.Sprintf("this host's clock differs from the database's by %s", round(ahead)),
		Hint: "synchronise the clocks (NTP); leases and schedules run by the database's alone",
	})
}

func (d *doctor) consumers(ctx context.Context) error {
	for _, c := range ReadConsumers(ctx, d.config.Inboxes) {
		name := CheckConsumer + ": " + c.Inbox
		if c.Group != "" {
			name = CheckConsumer + ": " + c.Group
		}
		var wrong causes
		c.judge(&wrong, 0)
		if c.Retry > 0 {
			wrong.add(Yellow, CauseConsumerRetrying, fixHeld("retry", c.Group), "group %s: %d %s and will be tried again", c.Group, c.Retry, plural(c.Retry, "event failed", "events failed"))
		}
		for _, w := range wrong.all {
			d.found(Examination{Check: name, Detail: w.Text, Hint: w.Fix})
		}
		if len(wrong.all) == 0 {
			d.found(Examination{Check: name, OK: true, Detail: fmt.Sprintf("%d of %d partitions have a live reader, nothing is held", c.Readers, c.Partitions)})
		}
	}
	return nil
}
