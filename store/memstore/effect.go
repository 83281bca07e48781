package memstore

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/waybillhq/waybill/store"
)

type effectKey struct{ group, eventID, name string }

type effectRow struct {
	call  store.EffectCall
	until time.Time
}

func (r *effectRow) show(now time.Time) store.EffectCall {
	call := r.call
	call.ExpiresIn = r.until.Sub(now)
	call.Result = bytes.Clone(call.Result)
	return call
}

// EffectsOf returns the event's calls, by name.
func (tx inboxTx) EffectsOf(ctx context.Context, group, eventID string) ([]store.EffectCall, error) {
	var found []store.EffectCall
	err := tx.call(ctx, "effects of", eventID, func() error {
		if err := tx.store.needInbox(); err != nil {
			return err
		}
		found = tx.effectsOf(group, eventID)
		return nil
	})
	return found, err
}

func (tx *Tx) effectsOf(group, eventID string) []store.EffectCall {
	now := tx.store.now()
	var found []store.EffectCall
	for key, row := range tx.store.inbox.effects {
		if _, own := tx.writes.effects[key]; !own && key.group == group && key.eventID == eventID {
			found = append(found, row.show(now))
		}
	}
	for key, row := range tx.writes.effects {
		if row != nil && key.group == group && key.eventID == eventID {
			found = append(found, row.show(now))
		}
	}
	slices.SortFunc(found, func(a, b store.EffectCall) int { return cmp.Compare(a.Name, b.Name) })
	return found
}

func (tx *Tx) effect(key effectKey) (effectRow, bool) {
	if row, ok := tx.writes.effects[key]; ok {
		if row == nil {
			return effectRow{}, false
		}
		return *row, true
	}
	row, ok := tx.store.inbox.effects[key]
	return row, ok
}

// changeEffect locks a row and has change say what becomes of it: nil leaves it.
func (tx inboxTx) changeEffect(ctx context.Context, op, group string, ref store.EffectRef, change func(row effectRow, found bool)) error {
	key := effectKey{group, ref.EventID, ref.Name}
	return tx.callLocked(ctx, op, ref.EventID, lockKey{"effect", group, ref.EventID, ref.Name}, func() error {
		if err := tx.store.needInbox(); err != nil {
			return err
		}
		row, found := tx.effect(key)
		change(row, found)
		return nil
	})
}

// BeginEffect writes that the call is DOING.
func (tx inboxTx) BeginEffect(ctx context.Context, call store.EffectCall, ttl time.Duration) (begun store.EffectCall, err error) {
	err = tx.changeEffect(ctx, "begin effect", call.Group, call.EffectRef, func(row effectRow, found bool) {
		now := tx.store.now()
		switch {
		case !found:
			row.call = call
			row.call.State, row.call.Tries, row.call.Result, row.call.StartedAt = store.EffectDoing, 0, nil, now
		case row.call.State == store.EffectDone:
			begun = row.show(now)
			return
		}
		row.call.Owner = call.Owner
		row.call.Tries++
		row.until = now.Add(ttl)
		tx.writes.effects[effectKey{call.Group, call.EventID, call.Name}] = &row
		begun = row.show(now)
	})
	return begun, err
}

// FinishEffect makes a call DONE.
func (tx inboxTx) FinishEffect(ctx context.Context, call store.EffectCall) (done bool, err error) {
	err = tx.changeEffect(ctx, "finish effect", call.Group, call.EffectRef, func(row effectRow, found bool) {
		if !found || row.call.State != store.EffectDoing || row.call.Owner != call.Owner {
			return
		}
		row.call.State, row.call.Result = store.EffectDone, bytes.Clone(call.Result)
		tx.writes.effects[effectKey{call.Group, call.EventID, call.Name}] = &row
		done = true
	})
	return done && err == nil, err
}

// ForgetEffect removes a call that is DOING.
func (tx inboxTx) ForgetEffect(ctx context.Context, group string, ref store.EffectRef) (forgot bool, err error) {
	err = tx.changeEffect(ctx, "forget effect", group, ref, func(row effectRow, found bool) {
		if forgot = found && row.call.State == store.EffectDoing; forgot {
			tx.writes.effects[effectKey{group, ref.EventID, ref.Name}] = nil
		}
	})
	return forgot && err == nil, err
}

// RenewEffects extends the owner's leases.
func (s *Store) RenewEffects(ctx context.Context, group, owner string, ttl time.Duration, calls []store.EffectRef) ([]store.EffectRef, error) {
	var held []store.EffectRef
	err := s.call(ctx, "renew effects", func() error {
		if err := s.needInbox(); err != nil {
			return err
		}
		for _, ref := range calls {
			key := effectKey{group, ref.EventID, ref.Name}
			row, found := s.inbox.effects[key]
			if !found || row.call.State != store.EffectDoing || row.call.Owner != owner {
				continue
			}
			row.until = s.now().Add(ttl)
			s.inbox.effects[key] = row
			held = append(held, ref)
		}
		return nil
	})
	return held, err
}

// ListEffects returns the calls of an event, by name.
func (s *Store) ListEffects(ctx context.Context, group, eventID string) ([]store.EffectCall, error) {
	var found []store.EffectCall
	err := s.call(ctx, "list effects", func() error {
		if err := s.needInbox(); err != nil {
			return err
		}
		for key, row := range s.inbox.effects {
			if key.group == group && key.eventID == eventID {
				found = append(found, row.show(s.now()))
			}
		}
		slices.SortFunc(found, func(a, b store.EffectCall) int { return cmp.Compare(a.Name, b.Name) })
		return nil
	})
	return found, err
}
