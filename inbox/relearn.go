package inbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
)

// relearnEvery is the pause between two looks for held events of a schema
// version that was unknown and no longer is. While old and new programs run
// together, an old one may park what a new one released; it is released again.
const relearnEvery = time.Minute

// relearn releases held events whose schema version this program knows, at
// once and then from time to time: the program that held them was older.
func (p *Processor[TX]) relearn(ctx context.Context) {
	if !p.config.judges() {
		return
	}
	for failures := 0; ctx.Err() == nil; {
		err := p.relearnAll(ctx)
		if ctx.Err() != nil {
			return
		}
		p.report(troubleHeld, err)
		if err != nil {
			failures++
			pauseFor(ctx, backoff(failures, retryFirst, retryLast))
			continue
		}
		failures = 0
		pauseFor(ctx, relearnEvery)
	}
}

func (p *Processor[TX]) relearnAll(ctx context.Context) error {
	released := 0
	for after := int64(0); ; {
		page, err := p.st.ListHeld(ctx, p.config.Group, store.HeldFilter{State: store.HeldDead, After: after})
		if err != nil {
			return err
		}
		for i := range page {
			after = page[i].Seq
			if !heldUnknown(page[i].LastErr) || !p.understands(&page[i].Record) {
				continue
			}
			done, err := p.relearnOne(ctx, &page[i])
			if err != nil {
				return err
			}
			if done {
				released++
			}
		}
		if len(page) == 0 {
			break
		}
	}
	if released > 0 {
		p.config.Logger.Info("events of a schema version that was unknown are handled now", "events", released)
		p.wakeReleaser()
	}
	return nil
}

// understands reports whether the record's version is known now.
func (p *Processor[TX]) understands(record *waybill.Record) bool {
	event, err := waybill.Decode(record)
	return err == nil && !errors.Is(p.config.fit(&event), waybill.ErrUnknownSchema)
}

// relearnOne makes one event due, if it still is as it was seen.
func (p *Processor[TX]) relearnOne(ctx context.Context, seen *store.Held) (bool, error) {
	tx, err := p.st.BeginInbox(ctx)
	if err != nil {
		return false, err
	}
	defer rollback(ctx, tx)
	key := store.HeldKeyRef{Topic: seen.Topic, Key: seen.Key}
	if err := tx.LockKey(ctx, p.config.Group, key); err != nil {
		return false, err
	}
	found := false
	for limit := heldPage; !found; limit *= 10 {
		held, err := tx.HeldOfKey(ctx, p.config.Group, key, limit)
		if err != nil {
			return false, err
		}
		for i := range held {
			found = found || held[i].Seq == seen.Seq && held[i].State == store.HeldDead && heldUnknown(held[i].LastErr)
		}
		if len(held) < limit {
			break
		}
	}
	if !found {
		return false, nil // a person or another process was faster
	}
	due := *seen
	due.State, due.RetryIn, due.Attempts = store.HeldRetry, 0, 0
	if _, err := tx.UpdateHeld(ctx, due); err != nil {
		return false, err
	}
	if err := tx.Record(ctx, store.AuditEntry{
		Actor: "consumer " + p.config.Group, Verb: "held retry", Target: seen.Event.ID,
		Reason: fmt.Sprintf("this program understands the event, whose schema version was unknown: %s", clip(seen.LastErr, 200)),
		Before: `{"state":"DEAD"}`, After: `{"state":"RETRY"}`,
	}); err != nil {
		return false, err
	}
	return true, tx.Commit(ctx)
}
