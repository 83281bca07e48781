package memstore

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
)

type heldKey struct{ group, eventID string }

type groupKey struct{ group, topic, key string }

type heldRow struct {
	held    store.Held
	retryAt time.Time // zero: not set
}

func (i *inboxTables) setHeld(key heldKey, row *heldRow) {
	if old, ok := i.held[key]; ok {
		at := groupKey{key.group, old.held.Topic, old.held.Key}
		delete(i.byKey[at], key.eventID)
		if len(i.byKey[at]) == 0 {
			delete(i.byKey, at)
		}
		delete(i.held, key)
	}
	if row == nil {
		return
	}
	i.held[key] = *row
	at := groupKey{key.group, row.held.Topic, row.held.Key}
	if i.byKey[at] == nil {
		i.byKey[at] = make(map[string]struct{})
	}
	i.byKey[at][key.eventID] = struct{}{}
}

// KeysHeld returns those of the keys that have held events.
func (tx inboxTx) KeysHeld(ctx context.Context, group string, keys []store.HeldKeyRef) ([]store.HeldKeyRef, error) {
	var found []store.HeldKeyRef
	err := tx.call(ctx, "keys held", "", func() error {
		if err := tx.store.needInbox(); err != nil {
			return err
		}
		for _, key := range keys {
			if len(tx.heldOf(groupKey{group, key.Topic, key.Key})) > 0 && !slices.Contains(found, key) {
				found = append(found, key)
			}
		}
		return nil
	})
	return found, err
}

// LockKey locks the key's row until the transaction ends.
func (tx inboxTx) LockKey(ctx context.Context, group string, key store.HeldKeyRef) error {
	return tx.callLocked(ctx, "lock key", key.Topic+"/"+key.Key, lockKey{"key", group, key.Topic, key.Key}, func() error {
		return tx.store.needInbox()
	})
}

// HeldOfKey returns the key's held events by Seq.
func (tx inboxTx) HeldOfKey(ctx context.Context, group string, key store.HeldKeyRef, limit int) ([]store.Held, error) {
	var found []store.Held
	err := tx.call(ctx, "held of key", key.Topic+"/"+key.Key, func() error {
		if err := tx.store.needInbox(); err != nil {
			return err
		}
		rows := tx.heldOf(groupKey{group, key.Topic, key.Key})
		slices.SortFunc(rows, func(a, b heldRow) int { return int(a.held.Seq - b.held.Seq) })
		if limit > 0 && len(rows) > limit {
			rows = rows[:limit]
		}
		for _, row := range rows {
			found = append(found, row.show(tx.store.now()))
		}
		return nil
	})
	return found, err
}

// Hold inserts a held event.
func (tx inboxTx) Hold(ctx context.Context, held store.Held) (inserted bool, err error) {
	key := heldKey{held.Group, held.Event.ID}
	err = tx.callLocked(ctx, "hold", key.eventID, lockKey{"held", key.group, key.eventID, ""}, func() error {
		s := tx.store
		if err := s.needInbox(); err != nil {
			return err
		}
		if _, found := tx.held(key); found {
			return nil
		}
		inserted = true
		now := s.now()
		s.inbox.lastSeq++
		row := heldRow{held: held}
		row.held.Seq = s.inbox.lastSeq
		row.held.Event = identity(held.Event)
		row.held.Record = cloneRecord(held.Record)
		row.held.HeldAt = now
		if held.Attempts > 0 || held.LastErr != "" {
			row.held.FirstFailedAt, row.held.LastFailedAt = now, now
		}
		if held.FirstErr == "" {
			row.held.FirstErr = held.LastErr
		}
		row.schedule(held, now)
		tx.writes.held[key] = &row
		return nil
	})
	return inserted && err == nil, err
}

// UpdateHeld writes the outcome of an attempt.
func (tx inboxTx) UpdateHeld(ctx context.Context, held store.Held) (found bool, err error) {
	key := heldKey{held.Group, held.Event.ID}
	err = tx.callLocked(ctx, "update held", key.eventID, lockKey{"held", key.group, key.eventID, ""}, func() error {
		if err := tx.store.needInbox(); err != nil {
			return err
		}
		var row heldRow
		if row, found = tx.held(key); !found {
			return nil
		}
		now := tx.store.now()
		if held.Attempts > row.held.Attempts || held.LastErr != row.held.LastErr {
			row.held.LastFailedAt = now
			if row.held.FirstFailedAt.IsZero() {
				row.held.FirstFailedAt = now
			}
		}
		row.held.State, row.held.Attempts, row.held.Forced = held.State, held.Attempts, held.Forced
		if held.State != store.HeldDead {
			row.held.DeadLetterAt, row.held.DeadLetterNote = time.Time{}, ""
		}
		row.held.LastErr, row.held.Stack = held.LastErr, held.Stack
		if row.held.FirstErr == "" {
			row.held.FirstErr = held.FirstErr
		}
		if row.held.FirstErr == "" {
			row.held.FirstErr = held.LastErr
		}
		row.schedule(held, now)
		tx.writes.held[key] = &row
		return nil
	})
	return found && err == nil, err
}

// DeleteHeld removes a held event.
func (tx inboxTx) DeleteHeld(ctx context.Context, group, eventID string) (found bool, err error) {
	key := heldKey{group, eventID}
	err = tx.callLocked(ctx, "delete held", eventID, lockKey{"held", group, eventID, ""}, func() error {
		if err := tx.store.needInbox(); err != nil {
			return err
		}
		if _, found = tx.held(key); found {
			tx.writes.held[key] = nil
		}
		return nil
	})
	return found && err == nil, err
}

// held returns a row as the transaction sees it.
func (tx *Tx) held(key heldKey) (heldRow, bool) {
	if row, ok := tx.writes.held[key]; ok {
		if row == nil {
			return heldRow{}, false
		}
		return *row, true
	}
	row, ok := tx.store.inbox.held[key]
	return row, ok
}

// heldOf returns a key's rows as the transaction sees them.
func (tx *Tx) heldOf(at groupKey) []heldRow {
	var rows []heldRow
	for id := range tx.store.inbox.byKey[at] {
		key := heldKey{at.group, id}
		if _, own := tx.writes.held[key]; !own {
			rows = append(rows, tx.store.inbox.held[key])
		}
	}
	for key, row := range tx.writes.held {
		if row != nil && key.group == at.group && row.held.Topic == at.topic && row.held.Key == at.key {
			rows = append(rows, *row)
		}
	}
	return rows
}

func (r *heldRow) schedule(held store.Held, now time.Time) {
	r.retryAt = time.Time{}
	if held.State == store.HeldRetry {
		r.retryAt = now.Add(held.RetryIn)
	}
}

func (r *heldRow) show(now time.Time) store.Held {
	held := r.held
	held.RetryIn, held.HeldFor = 0, max(now.Sub(held.HeldAt), 0)
	if !r.retryAt.IsZero() {
		held.RetryIn = r.retryAt.Sub(now)
	}
	held.Record = cloneRecord(held.Record)
	return held
}

func cloneRecord(record waybill.Record) waybill.Record {
	record.Value = bytes.Clone(record.Value)
	record.Headers = slices.Clone(record.Headers)
	for i := range record.Headers {
		record.Headers[i].Value = bytes.Clone(record.Headers[i].Value)
	}
	return record
}

// ReleasableKeys returns keys that have something to do now.
func (s *Store) ReleasableKeys(ctx context.Context, group string, deadBlocks bool, limit int) ([]store.HeldKeyRef, error) {
	var keys []store.HeldKeyRef
	err := s.call(ctx, "releasable keys", func() error {
		if err := s.needInbox(); err != nil {
			return err
		}
		first := make(map[store.HeldKeyRef]int64)
		for at, ids := range s.inbox.byKey {
			if at.group != group {
				continue
			}
			if seq := s.releasable(at.group, ids, deadBlocks); seq > 0 {
				first[store.HeldKeyRef{Topic: at.topic, Key: at.key}] = seq
			}
		}
		keys = slices.SortedFunc(maps.Keys(first), func(a, b store.HeldKeyRef) int { return int(first[a] - first[b]) })
		if limit > 0 && len(keys) > limit {
			keys = keys[:limit]
		}
		return nil
	})
	return keys, err
}

// releasable returns the lowest Seq of a key that has something to do, else 0.
func (s *Store) releasable(group string, ids map[string]struct{}, deadBlocks bool) int64 {
	now := s.now()
	var due, blocked int64 // lowest Seq of each
	blocking := false
	lowest := func(current, seq int64) int64 {
		if current == 0 || seq < current {
			return seq
		}
		return current
	}
	for id := range ids {
		row := s.inbox.held[heldKey{group, id}]
		switch row.held.State {
		case store.HeldRetry:
			blocking = true
			if !row.retryAt.After(now) {
				due = lowest(due, row.held.Seq)
			}
		case store.HeldDead:
			blocking = blocking || deadBlocks
		case store.HeldBlocked:
			blocked = lowest(blocked, row.held.Seq)
		}
	}
	if blocking {
		return due
	}
	return blocked
}

// NextRetry returns the time until the earliest RETRY is due.
func (s *Store) NextRetry(ctx context.Context, group string) (until time.Duration, found bool, err error) {
	err = s.call(ctx, "next retry", func() error {
		if err := s.needInbox(); err != nil {
			return err
		}
		now := s.now()
		for key, row := range s.inbox.held {
			if key.group != group || row.held.State != store.HeldRetry {
				continue
			}
			if in := row.retryAt.Sub(now); !found || in < until {
				until, found = in, true
			}
		}
		return nil
	})
	return until, found, err
}

// ListHeld returns held events by Seq.
func (s *Store) ListHeld(ctx context.Context, group string, filter store.HeldFilter) ([]store.Held, error) {
	var found []store.Held
	err := s.call(ctx, "list held", func() error {
		if err := s.needInbox(); err != nil {
			return err
		}
		now := s.now()
		for key, row := range s.inbox.held {
			if key.group == group && row.held.Seq > filter.After &&
				(filter.EventID == "" || filter.EventID == key.eventID) &&
				(filter.Key == "" || filter.Key == row.held.Key) &&
				(filter.State == "" || filter.State == row.held.State) {
				found = append(found, row.show(now))
			}
		}
		slices.SortFunc(found, func(a, b store.Held) int { return int(a.Seq - b.Seq) })
		limit := filter.Limit
		if limit <= 0 {
			limit = defaultLimit
		}
		if len(found) > limit {
			found = found[:limit]
		}
		return nil
	})
	return found, err
}

// CountHeld sums up a group's held events.
func (s *Store) CountHeld(ctx context.Context, group string) (store.HeldCounts, error) {
	var counts store.HeldCounts
	err := s.call(ctx, "count held", func() error {
		if err := s.needInbox(); err != nil {
			return err
		}
		now := s.now()
		for key, row := range s.inbox.held {
			if key.group != group {
				continue
			}
			counts.OldestAge = max(counts.OldestAge, now.Sub(row.held.HeldAt))
			switch row.held.State {
			case store.HeldWaiting:
				counts.Waiting++
			case store.HeldBlocked:
				counts.Blocked++
			case store.HeldRetry:
				counts.Retry++
			case store.HeldDead:
				counts.Dead++
			}
		}
		return nil
	})
	return counts, err
}

// FindConsumed returns the groups' rows of one event id, by group.
func (s *Store) FindConsumed(ctx context.Context, eventID string) ([]store.Consumed, error) {
	var found []store.Consumed
	err := s.call(ctx, "find consumed", func() error {
		if err := s.needInbox(); err != nil {
			return err
		}
		for _, group := range s.groups() {
			if row, ok := s.inbox.consumed[consumedKey{group, eventID}]; ok {
				found = append(found, row.consumed)
			}
		}
		return nil
	})
	return found, err
}

// Groups returns the names of all groups, sorted.
func (s *Store) Groups(ctx context.Context) ([]string, error) {
	var groups []string
	err := s.call(ctx, "groups", func() error {
		if err := s.needInbox(); err != nil {
			return err
		}
		groups = s.groups()
		return nil
	})
	return groups, err
}

func (s *Store) groups() []string {
	names := make(map[string]struct{})
	for key := range s.inbox.consumed {
		names[key.group] = struct{}{}
	}
	for key := range s.inbox.held {
		names[key.group] = struct{}{}
	}
	for key := range s.inbox.progress {
		names[key.group] = struct{}{}
	}
	for key := range s.inbox.readers {
		names[key.Group] = struct{}{}
	}
	for key := range s.inbox.members {
		names[key.group] = struct{}{}
	}
	return slices.Sorted(maps.Keys(names))
}
