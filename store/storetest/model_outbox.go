package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
)

type modelStep struct {
	weight int
	run    func(t *testing.T, m *model)
}

var modelSteps = []modelStep{
	{14, stepAppend},
	{5, stepEndSlot},
	{14, stepApply},
	{6, stepDead},
	{4, stepRequeue},
	{3, stepCleanup},
	{2, stepLeases},
	{6, stepFetchKey},
	{2, stepFind},
	{12, stepInbox},
	{4, stepReaders},
	{3, compareOutbox},
	{2, compareHeld},
}

// stepAppend appends a few events, some of them again, in a transaction that
// may stay open.
func stepAppend(t *testing.T, m *model) {
	slot := ownTransaction
	if m.twoWrite && m.chance(40) {
		slot = m.random.IntN(len(m.slots))
	}
	var events []waybill.Event
	for range 1 + m.random.IntN(4) {
		if len(m.made) > 0 && m.chance(20) {
			if again := m.recent(); !m.isOpen(again.ID) {
				events = append(events, again)
			}
			continue
		}
		e := m.newEvent()
		m.made = append(m.made, e)
		events = append(events, e)
		if m.chance(10) {
			events = append(events, e)
		}
	}
	if slot != ownTransaction {
		m.slots[slot] = append(m.slots[slot], eventIDs(events)...)
	}
	m.both(t, fmt.Sprintf("append in %d: %v", slot, eventIDs(events)), func(s side) (string, error) {
		results, err := s.append(t.Context(), slot, events)
		var said []string
		for _, result := range results {
			if result != nil && !errors.Is(result, waybill.ErrDuplicateEvent) {
				return "", result
			}
			said = append(said, fmt.Sprintf("duplicate %t", result != nil))
		}
		return strings.Join(said, ", "), err
	})
}

func (m *model) newEvent() waybill.Event {
	e := waybill.Event{
		ID:            fmt.Sprintf("e%03d", len(m.made)),
		Type:          pick(m, "OrderPlaced", "OrderPaid"),
		Topic:         pick(m, "orders", "payments"),
		AggregateType: "order",
		AggregateID:   pick(m, "a", "A", "b ", "c'"),
		Data:          []byte(pick(m, "{}", "\x00", "")),
	}
	e.Normalize(time.Unix(1_700_000_000, 0))
	return e
}

func (m *model) isOpen(id string) bool {
	return slices.ContainsFunc(m.slots[:], func(ids []string) bool { return slices.Contains(ids, id) })
}

func eventIDs(events []waybill.Event) []string {
	var ids []string
	for _, e := range events {
		ids = append(ids, e.ID)
	}
	return ids
}

func stepEndSlot(t *testing.T, m *model) {
	m.endSlot(t, m.random.IntN(len(m.slots)), m.chance(70))
}

func (m *model) closeSlots(t *testing.T) {
	for slot := range m.slots {
		m.endSlot(t, slot, true)
	}
}

func (m *model) endSlot(t *testing.T, slot int, commit bool) {
	m.slots[slot] = nil
	m.both(t, fmt.Sprintf("end %d: commit %t", slot, commit), func(s side) (string, error) {
		return "", s.end(t.Context(), slot, commit)
	})
}

// stepApply settles, refuses and parks a few events, now and then as one that
// lost its lease.
func stepApply(t *testing.T, m *model) {
	ids := m.someIDs(5)
	kinds := make([]int, len(ids))
	for i := range kinds {
		kinds[i] = m.random.IntN(5)
	}
	forget, stale := m.chance(10), m.chance(10)
	due := pick(m, -time.Hour, time.Hour)
	m.both(t, fmt.Sprintf("apply %v: kinds %v, due in %v, forget %t, stale %t", ids, kinds, due, forget, stale), func(s side) (string, error) {
		guard, err := ownLanes(t.Context(), s)
		if err != nil {
			return "", err
		}
		if stale {
			guard.Lanes = slices.Clone(guard.Lanes)
			guard.Lanes[0].Fence--
		}
		changes := store.Changes{Forget: forget}
		for i, id := range ids {
			row, err := s.row(t.Context(), id)
			if err != nil {
				return "", err
			}
			change := store.Change{ID: row, EventID: id}
			switch kinds[i] {
			case 0:
				changes.Settled = append(changes.Settled, store.SettledChange{Change: change, Outcome: store.StatusSent, Via: "poll", Note: id})
			case 1:
				changes.Settled = append(changes.Settled, store.SettledChange{Change: change, Outcome: store.StatusSkipped, Via: "poll", Note: id})
			case 2:
				changes.Failed = append(changes.Failed, store.FailedChange{Change: change, Retries: i + 1, RetryIn: due, Error: "refused " + id})
			case 3:
				changes.Failed = append(changes.Failed, store.FailedChange{Change: change, Dead: true, Retries: 12, Error: "died " + id})
			case 4:
				changes.Parked = append(changes.Parked, row)
			}
		}
		err = s.outbox().Apply(t.Context(), guard, changes)
		if errors.Is(err, store.ErrStale) {
			return "stale", nil
		}
		return "applied", err
	})
}

func ownLanes(ctx context.Context, s side) (store.Guard, error) {
	guard := s.leases()
	if len(guard.Lanes) < store.Lanes {
		more, err := s.outbox().Claim(ctx, owner, time.Hour, store.Lanes)
		if err != nil {
			return store.Guard{}, err
		}
		guard.Owner = owner
		guard.Lanes = append(guard.Lanes, more...)
	}
	return *guard, nil
}

func stepLeases(t *testing.T, m *model) {
	n := m.random.IntN(store.Lanes)
	m.both(t, fmt.Sprintf("release %d lanes", n), func(s side) (string, error) {
		guard, err := ownLanes(t.Context(), s)
		if err != nil {
			return "", err
		}
		if err := s.outbox().Release(t.Context(), owner, guard.Lanes[:n]); err != nil {
			return "", err
		}
		held, live, err := s.outbox().Renew(t.Context(), store.Heartbeat{Owner: owner, Host: "h", Mode: "poll", TTL: time.Hour, Held: guard.Lanes})
		s.leases().Lanes = slices.Clone(guard.Lanes[n:])
		return fmt.Sprintf("held %d, live %d", len(held), live), err
	})
}

func stepDead(t *testing.T, m *model) {
	ids, retry := m.someIDs(4), m.chance(50)
	m.both(t, fmt.Sprintf("dead %v: retry %t", ids, retry), func(s side) (string, error) {
		verb := s.outbox().SkipDead
		if retry {
			verb = s.outbox().RetryDead
		}
		results, err := verb(t.Context(), because, ids)
		return fmt.Sprint(results), err
	})
}

func stepRequeue(t *testing.T, m *model) {
	ids := m.someIDs(4)
	m.both(t, fmt.Sprintf("requeue %v", ids), func(s side) (string, error) {
		results, err := s.outbox().Requeue(t.Context(), because, ids)
		return fmt.Sprint(results), err
	})
}

func stepCleanup(t *testing.T, m *model) {
	// Without a limit: whether age or id decides who goes first is left open.
	request := store.CleanupRequest{Retention: pick(m, 0, time.Hour), Archive: m.chance(50)}
	below := ""
	if len(m.made) > 0 && m.chance(30) {
		below = m.recent().ID
	}
	m.both(t, fmt.Sprintf("cleanup %+v below %q", request, below), func(s side) (string, error) {
		bounded := request
		if below != "" {
			row, err := s.row(t.Context(), below)
			if err != nil {
				return "", err
			}
			bounded.Below = row
		}
		n, err := s.outbox().Cleanup(t.Context(), bounded)
		return fmt.Sprint(n), err
	})
}

func stepFetchKey(t *testing.T, m *model) {
	if len(m.made) == 0 {
		return
	}
	id, after := m.recent().ID, m.recent().ID
	request := store.KeyRequest{SkipDead: m.chance(50), Limit: 1 + m.random.IntN(6)}
	m.both(t, fmt.Sprintf("fetch key of %s after %s: %+v", id, after, request), func(s side) (string, error) {
		found, err := s.outbox().Find(t.Context(), store.Filter{EventIDs: []string{id}})
		if err != nil || len(found) == 0 || found[0].Row == nil {
			return "not queued", err
		}
		asked := request
		asked.Lane, asked.KeyHash = found[0].Row.Lane, found[0].Row.KeyHash
		if asked.After, err = s.row(t.Context(), after); err != nil {
			return "", err
		}
		result, err := s.outbox().FetchKey(t.Context(), asked)
		return rowsText(result.Rows), err
	})
}

func stepFind(t *testing.T, m *model) {
	filter := store.Filter{
		Key: pick(m, "", "a", "b ", "c'"), Topic: pick(m, "", "", "orders"), Type: pick(m, "", "OrderPaid"),
		Status: pick(m, "", store.StatusPending, store.StatusSent, store.StatusDead, store.StatusSkipped),
		Newest: m.chance(50), Limit: 1 + m.random.IntN(20),
	}
	m.both(t, fmt.Sprintf("find %+v", filter), func(s side) (string, error) {
		found, err := s.outbox().Find(t.Context(), filter)
		return trackedText(found), err
	})
}

// compareOutbox compares all that can be seen of the outbox.
func compareOutbox(t *testing.T, m *model) {
	m.both(t, "compare events", func(s side) (string, error) {
		found, err := s.outbox().Find(t.Context(), store.Filter{Limit: 100_000})
		return trackedText(found), err
	})
	m.both(t, "compare archive", func(s side) (string, error) {
		found, err := s.outbox().Find(t.Context(), store.Filter{EventIDs: append(eventIDs(m.made), "missing"), Limit: 100_000})
		// Where the archived stand among the others is left open.
		slices.SortFunc(found, func(a, b store.Tracked) int { return strings.Compare(a.Event.ID, b.Event.ID) })
		return trackedText(found), err
	})
	m.both(t, "compare hot rows", func(s side) (string, error) {
		rows, err := Hot(t.Context(), s.outbox(), store.WalkRequest{Lanes: allCursors()})
		return rowsText(rows), err
	})
	m.both(t, "compare due rows", func(s side) (string, error) {
		rows, err := s.outbox().FetchDue(t.Context(), allLanes(), 100_000)
		slices.SortFunc(rows, func(a, b *store.Row) int { return int(a.ID - b.ID) })
		return rowsText(rows), err
	})
	m.both(t, "compare held keys", func(s side) (string, error) {
		keys, err := s.outbox().HeldKeys(t.Context(), allLanes())
		var topics []string
		for _, key := range keys {
			topics = append(topics, key.Topic)
		}
		slices.Sort(topics)
		return fmt.Sprint(topics), err
	})
	m.both(t, "compare counts", func(s side) (string, error) {
		counts, err := s.outbox().Counts(t.Context())
		counts.OldestAge = 0
		return fmt.Sprintf("%+v", counts), err
	})
	m.both(t, "compare audit", func(s side) (string, error) {
		entries, err := s.outbox().Audit(t.Context(), 1000)
		var said []string
		for _, entry := range entries {
			said = append(said, entry.Verb+" "+entry.Target)
		}
		return strings.Join(said, ", "), err
	})
}

func trackedText(found []store.Tracked) string {
	var said []string
	for _, f := range found {
		text := fmt.Sprintf("%s %s archived %t %q %q", f.Event.ID, f.Status, f.Archived, f.Event.Key, f.Event.Data)
		if f.Row != nil {
			text += " row " + rowText(f.Row)
		}
		if f.Receipt != nil {
			text += fmt.Sprintf(" receipt %s %s", f.Receipt.Outcome, f.Receipt.Note)
		}
		said = append(said, text)
	}
	return strings.Join(said, "\n")
}

func rowsText(rows []*store.Row) string {
	var said []string
	for _, row := range rows {
		said = append(said, row.Event.ID+" "+rowText(row))
	}
	return strings.Join(said, "\n")
}

func rowText(row *store.Row) string {
	return fmt.Sprintf("{%s parked %t skip %t retries %d retry %t due %t %q %q}", row.Status, row.Parked, row.Skip, row.Retries,
		row.HasRetry, row.HasRetry && row.RetryIn <= 0, row.FirstErr, row.LastErr)
}
