package storetest

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
)

func heldCases[TX any]() []testCase[TX] {
	return []testCase[TX]{
		{"a held event comes back as it was", heldFields[TX]},
		{"an id is held once per group", heldOnce[TX]},
		{"a key's held events come in order of arrival", heldOrder[TX]},
		{"an update writes what an attempt changed", heldUpdate[TX]},
		{"a delete removes one", heldDelete[TX]},
		{"rollbacks undo holds", heldRollback[TX]},
		{"keys with held events are found among many", heldKeysAmong[TX]},
		{"a locked key keeps a second transaction waiting", heldLock[TX]},
		{"a key's lock outlives a rollback to the savepoint", heldLockSavepoint[TX]},
		{"other keys are not locked", heldLockOthers[TX]},
		{"releasable keys are those with something to do", heldReleasable[TX]},
		{"the earliest retry is known", heldNextRetry[TX]},
		{"held events are listed and counted", heldListed[TX]},
	}
}

// kept returns a held event of the group.
func kept(id, key string, state store.HeldState) store.Held {
	return store.Held{
		Group: group, Topic: "orders", Key: key, State: state,
		Event:  waybill.Event{ID: id, Type: "OrderPaid", AggregateType: "order", AggregateID: key, AggregateVersion: 1},
		Record: waybill.Record{EventID: id, Topic: "orders", Key: key, Value: []byte(id)},
	}
}

// inInbox runs do in a consumer's transaction and commits it.
func (s *suite[TX]) inInbox(t testing.TB, do func(tx store.InboxTx[TX])) {
	t.Helper()
	tx := s.beginInbox(t)
	do(tx)
	s.commitInbox(t, tx)
}

func hold[TX any](t testing.TB, tx store.InboxTx[TX], held store.Held) bool {
	t.Helper()
	inserted, err := tx.Hold(t.Context(), held)
	if err != nil {
		t.Fatalf("hold %s: %v", held.Event.ID, err)
	}
	return inserted
}

func (s *suite[TX]) hold(t testing.TB, all ...store.Held) {
	t.Helper()
	s.inInbox(t, func(tx store.InboxTx[TX]) {
		for _, held := range all {
			if !hold(t, tx, held) {
				t.Fatalf("%s was held already", held.Event.ID)
			}
		}
	})
}

func (s *suite[TX]) listHeld(t testing.TB, filter store.HeldFilter) []store.Held {
	t.Helper()
	found, err := s.Consumer.ListHeld(t.Context(), group, filter)
	if err != nil {
		t.Fatalf("list held: %v", err)
	}
	return found
}

func heldIDs(all []store.Held) []string {
	var ids []string
	for _, held := range all {
		ids = append(ids, held.Event.ID)
	}
	return ids
}

func wantHeldIDs(t *testing.T, what string, got []store.Held, want ...string) {
	t.Helper()
	if ids := heldIDs(got); !slices.Equal(ids, want) {
		t.Errorf("%s: got %q, want %q", what, ids, want)
	}
}

func ofKey[TX any](t testing.TB, tx store.InboxTx[TX], key string, limit int) []store.Held {
	t.Helper()
	found, err := tx.HeldOfKey(t.Context(), group, store.HeldKeyRef{Topic: "orders", Key: key}, limit)
	if err != nil {
		t.Fatalf("held of key %s: %v", key, err)
	}
	return found
}

func heldFields[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	want := store.Held{
		Group: group, Topic: "orders", Key: "schlüssel '1'", Partition: 9, Position: 1 << 50,
		Event: waybill.Event{
			ID: "it's ü", Type: "OrderPaid", TenantID: "t", AggregateType: "order", AggregateID: "O-1", AggregateVersion: 5,
		},
		State: store.HeldRetry, Attempts: 2, RetryIn: time.Hour, FirstErr: "first 'ü'", LastErr: "last", Stack: "goroutine 1\n\tmain.go:1",
		Record: waybill.Record{
			EventID: "it's ü", Topic: "orders.raw", Key: "schlüssel '1'", Value: []byte("\x00\xff\xfe{}"),
			Headers: []waybill.Header{
				{Key: "a", Value: []byte("1")}, {Key: "a", Value: []byte("2")}, {Key: "Ä b", Value: []byte{0, 0xff}}, {Key: "empty"},
			},
		},
	}
	waiting := kept("waits", "k", store.HeldWaiting)
	waiting.Record.Value = nil
	s.hold(t, want, waiting)
	var inTx []store.Held
	s.inInbox(t, func(tx store.InboxTx[TX]) { inTx = ofKey(t, tx, want.Key, 10) })
	for where, found := range map[string][]store.Held{
		"list": s.listHeld(t, store.HeldFilter{EventID: want.Event.ID}), "held of key": inTx,
	} {
		if len(found) != 1 {
			t.Fatalf("%s: got %d, want 1", where, len(found))
		}
		wantHeld(t, where, found[0], want)
	}
	found := s.listHeld(t, store.HeldFilter{EventID: "waits"})
	if len(found) != 1 || !found[0].LastFailedAt.IsZero() || found[0].RetryIn != 0 {
		t.Errorf("one that never failed: got %+v", found)
	}
}

func wantHeld(t *testing.T, where string, got, want store.Held) {
	t.Helper()
	if got.Seq <= 0 || got.HeldAt.IsZero() || got.HeldFor < 0 || got.LastFailedAt.IsZero() || got.FirstFailedAt.IsZero() || got.HeldAt.Location() != time.UTC {
		t.Errorf("%s: seq %d, held at %v, failed at %v", where, got.Seq, got.HeldAt, got.LastFailedAt)
	}
	if got.RetryIn <= 0 || got.RetryIn > want.RetryIn {
		t.Errorf("%s: retry in %v, want about %v", where, got.RetryIn, want.RetryIn)
	}
	if !bytes.Equal(got.Record.Value, want.Record.Value) || !slices.EqualFunc(got.Record.Headers, want.Record.Headers, func(a, b waybill.Header) bool {
		return a.Key == b.Key && bytes.Equal(a.Value, b.Value)
	}) {
		t.Errorf("%s: record: got %q, want %q", where, got.Record, want.Record)
	}
	got.Seq, got.HeldAt, got.HeldFor, got.LastFailedAt, got.RetryIn = want.Seq, want.HeldAt, want.HeldFor, want.LastFailedAt, want.RetryIn
	got.FirstFailedAt = want.FirstFailedAt
	got.Record.Value, got.Record.Headers = want.Record.Value, want.Record.Headers
	got.Event.OccurredAt = want.Event.OccurredAt
	if g, w := fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want); g != w {
		t.Errorf("%s:\n got %s\nwant %s", where, g, w)
	}
}

func heldOnce[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	s.hold(t, kept("1", "k", store.HeldDead))
	s.inInbox(t, func(tx store.InboxTx[TX]) {
		again := kept("1", "k", store.HeldRetry)
		again.LastErr = "again"
		if hold(t, tx, again) {
			t.Error("an id was held twice")
		}
		other := kept("1", "k", store.HeldBlocked)
		other.Group = "points"
		if !hold(t, tx, other) {
			t.Error("another group's hold was refused")
		}
		if !hold(t, tx, kept("1 ", "k", store.HeldBlocked)) { // ids are compared bytewise
			t.Error("another id's hold was refused")
		}
	})
	found := s.listHeld(t, store.HeldFilter{})
	wantHeldIDs(t, "held", found, "1", "1 ")
	if found[0].State != store.HeldDead || found[0].LastErr != "" {
		t.Errorf("the second hold changed the first: %+v", found[0])
	}
}

func heldOrder[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	var want []string
	for i := range 12 {
		id := fmt.Sprintf("%c", 'z'-rune(i))
		want = append(want, id)
		s.hold(t, kept(id, "k", store.HeldBlocked), kept("other"+id, "K", store.HeldBlocked))
	}
	s.inInbox(t, func(tx store.InboxTx[TX]) {
		hold(t, tx, kept("own", "k", store.HeldBlocked))
		want = append(want, "own")
		found := ofKey(t, tx, "k", 100)
		wantHeldIDs(t, "all", found, want...)
		for i := 1; i < len(found); i++ {
			if found[i].Seq <= found[i-1].Seq {
				t.Errorf("seq %d after %d", found[i].Seq, found[i-1].Seq)
			}
		}
		wantHeldIDs(t, "limit 2", ofKey(t, tx, "k", 2), want[:2]...)
		wantHeldIDs(t, "no such key", ofKey(t, tx, "k ", 2))
	})
}

func heldUpdate[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	s.hold(t, kept("1", "k", store.HeldBlocked))
	before := s.listHeld(t, store.HeldFilter{})[0]
	update := func(held store.Held, want bool) {
		t.Helper()
		s.inInbox(t, func(tx store.InboxTx[TX]) {
			if found, err := tx.UpdateHeld(t.Context(), held); err != nil || found != want {
				t.Errorf("update: got %t, %v, want %t", found, err, want)
			}
		})
	}
	next := before
	next.State, next.Attempts, next.RetryIn, next.FirstErr, next.LastErr, next.Stack = store.HeldRetry, 1, time.Hour, "first", "first", "stack"
	update(next, true)
	next.State, next.Attempts, next.RetryIn, next.FirstErr, next.LastErr, next.Stack = store.HeldRetry, 2, 2*time.Hour, "not first", "second", ""
	update(next, true)
	got := s.listHeld(t, store.HeldFilter{})[0]
	if got.State != store.HeldRetry || got.Attempts != 2 || got.FirstErr != "first" || got.LastErr != "second" || got.Stack != "" || got.LastFailedAt.IsZero() {
		t.Errorf("after two attempts: got %+v", got)
	}
	if got.RetryIn <= time.Hour || got.RetryIn > 2*time.Hour {
		t.Errorf("retry in: got %v, want about 2h", got.RetryIn)
	}
	if got.Seq != before.Seq || !got.HeldAt.Equal(before.HeldAt) || !bytes.Equal(got.Record.Value, before.Record.Value) {
		t.Errorf("an update changed what is no attempt's: %+v", got)
	}
	next.State, next.RetryIn = store.HeldDead, 0
	update(next, true)
	if _, found, err := s.Consumer.NextRetry(t.Context(), group); err != nil || found {
		t.Errorf("a dead event has a next retry: %t, %v", found, err)
	}
	missing := next
	missing.Event.ID = "missing"
	update(missing, false)
	otherGroup := next
	otherGroup.Group = "points"
	update(otherGroup, false)
}

func heldDelete[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	s.hold(t, kept("1", "k", store.HeldDead), kept("2", "k", store.HeldBlocked))
	s.inInbox(t, func(tx store.InboxTx[TX]) {
		for _, c := range []struct {
			group, id string
			want      bool
		}{{"points", "1", false}, {group, "missing", false}, {group, "1", true}, {group, "1", false}} {
			if found, err := tx.DeleteHeld(t.Context(), c.group, c.id); err != nil || found != c.want {
				t.Errorf("delete %s of %s: got %t, %v, want %t", c.id, c.group, found, err, c.want)
			}
		}
		wantHeldIDs(t, "in the transaction", ofKey(t, tx, "k", 10), "2")
	})
	wantHeldIDs(t, "afterwards", s.listHeld(t, store.HeldFilter{}), "2")
	s.hold(t, kept("1", "k", store.HeldBlocked)) // it may come again, and then comes last
	wantHeldIDs(t, "held again", s.listHeld(t, store.HeldFilter{}), "2", "1")
}

func heldRollback[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	s.hold(t, kept("1", "k", store.HeldDead))
	tx := s.beginInbox(t)
	if err := tx.Savepoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	hold(t, tx, kept("2", "k", store.HeldBlocked))
	if _, err := tx.DeleteHeld(t.Context(), group, "1"); err != nil {
		t.Fatal(err)
	}
	wantHeldIDs(t, "within the savepoint", ofKey(t, tx, "k", 10), "2")
	if err := tx.RollbackTo(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantHeldIDs(t, "after the savepoint", ofKey(t, tx, "k", 10), "1")
	hold(t, tx, kept("3", "k", store.HeldBlocked))
	wantHeldIDs(t, "seen by others", s.listHeld(t, store.HeldFilter{}), "1")
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantHeldIDs(t, "after the rollback", s.listHeld(t, store.HeldFilter{}), "1")
}

func heldKeysAmong[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	s.hold(t, kept("1", "a", store.HeldDead), kept("2", "a", store.HeldBlocked), kept("3", "b", store.HeldWaiting))
	keys := []store.HeldKeyRef{
		{Topic: "orders", Key: "b"},
		{Topic: "orders", Key: "A"},
		{Topic: "orders", Key: "a "},
		{Topic: "orders", Key: "c"},
		{Topic: "other", Key: "a"},
		{Topic: "orders", Key: "own"},
		{Topic: "orders", Key: "a"},
	}
	s.inInbox(t, func(tx store.InboxTx[TX]) {
		hold(t, tx, kept("4", "own", store.HeldDead))
		found, err := tx.KeysHeld(t.Context(), group, keys)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, key := range found {
			got = append(got, key.Topic+"/"+key.Key)
		}
		slices.Sort(got)
		if want := []string{"orders/a", "orders/b", "orders/own"}; !slices.Equal(got, want) {
			t.Errorf("keys held: got %q, want %q", got, want)
		}
		for _, c := range []struct {
			group string
			keys  []store.HeldKeyRef
		}{{"points", keys}, {group, nil}} {
			if none, err := tx.KeysHeld(t.Context(), c.group, c.keys); err != nil || len(none) != 0 {
				t.Errorf("keys held by %s among %d: got %v, %v", c.group, len(c.keys), none, err)
			}
		}
	})
}

// secondReader locks the key in a transaction of its own and then reads it.
func (s *suite[TX]) secondReader(t *testing.T, key store.HeldKeyRef) <-chan []string {
	t.Helper()
	tx := s.beginInbox(t)
	seen := make(chan []string, 1)
	go func() {
		if err := tx.LockKey(t.Context(), group, key); err != nil {
			seen <- []string{err.Error()}
			return
		}
		found, err := tx.HeldOfKey(t.Context(), group, key, 10)
		if err == nil {
			err = tx.Rollback(t.Context())
		}
		if err != nil {
			seen <- []string{err.Error()}
			return
		}
		seen <- heldIDs(found)
	}()
	return seen
}

func heldLock[TX any](t *testing.T, s *suite[TX]) {
	s.needsTwoWriters(t)
	s.open(t)
	key := store.HeldKeyRef{Topic: "orders", Key: "k"}
	for _, id := range []string{"1", "2"} { // the row is made first, then found
		tx := s.beginInbox(t)
		if err := tx.LockKey(t.Context(), group, key); err != nil {
			t.Fatal(err)
		}
		if err := tx.LockKey(t.Context(), group, key); err != nil {
			t.Fatalf("a second lock by the same transaction: %v", err)
		}
		seen := s.secondReader(t, key)
		stillWaiting(t, "the second reader", seen)
		hold(t, tx, kept(id, "k", store.HeldBlocked))
		s.commitInbox(t, tx)
		if got := received(t, "the second reader", seen); !slices.Contains(got, id) {
			t.Errorf("the second reader did not wait for %s: saw %q", id, got)
		}
	}
}

func heldLockSavepoint[TX any](t *testing.T, s *suite[TX]) {
	s.needsTwoWriters(t)
	s.open(t)
	key := store.HeldKeyRef{Topic: "orders", Key: "k"}
	tx := s.beginInbox(t)
	if err := tx.LockKey(t.Context(), group, key); err != nil {
		t.Fatal(err)
	}
	if err := tx.Savepoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	mark(t, tx, "1")
	if err := tx.RollbackTo(t.Context()); err != nil {
		t.Fatal(err)
	}
	seen := s.secondReader(t, key)
	stillWaiting(t, "the second reader", seen)
	hold(t, tx, kept("1", "k", store.HeldRetry))
	s.commitInbox(t, tx)
	if got := received(t, "the second reader", seen); !slices.Equal(got, []string{"1"}) {
		t.Errorf("the second reader saw %q, want the one held event", got)
	}
	s.wantConsumed(t, false, "1")
}

func heldLockOthers[TX any](t *testing.T, s *suite[TX]) {
	s.needsTwoWriters(t)
	s.open(t)
	key := store.HeldKeyRef{Topic: "orders", Key: "k"}
	tx := s.beginInbox(t)
	if err := tx.LockKey(t.Context(), group, key); err != nil {
		t.Fatal(err)
	}
	for _, other := range []store.HeldKeyRef{{Topic: "orders", Key: "K"}, {Topic: "Orders", Key: "k"}} {
		received(t, "another key's reader", s.secondReader(t, other))
	}
	second := s.beginInbox(t)
	if err := second.LockKey(t.Context(), "points", key); err != nil {
		t.Errorf("another group's key: %v", err)
	}
}

func heldReleasable[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	retry := func(id, key string, in time.Duration) store.Held {
		held := kept(id, key, store.HeldRetry)
		held.RetryIn, held.Attempts, held.LastErr = in, 1, "x"
		return held
	}
	s.hold(t,
		retry("1", "later", time.Hour), kept("2", "later", store.HeldBlocked),
		kept("3", "blocker gone", store.HeldBlocked), kept("4", "blocker gone", store.HeldBlocked),
		kept("5", "waiting", store.HeldWaiting), kept("6", "waiting", store.HeldBlocked),
		kept("7", "dead", store.HeldDead), kept("8", "dead", store.HeldBlocked),
		kept("9", "dead alone", store.HeldDead),
		kept("10", "waiting alone", store.HeldWaiting),
		retry("11", "due", -time.Second), kept("12", "due", store.HeldBlocked),
		kept("13", "due beside waiting", store.HeldWaiting), retry("14", "due beside waiting", -time.Second),
	)
	s.inInbox(t, func(tx store.InboxTx[TX]) {
		other := kept("15", "other group", store.HeldBlocked)
		other.Group = "points"
		hold(t, tx, other)
	})
	releasable := func(deadBlocks bool, limit int) []string {
		t.Helper()
		found, err := s.Consumer.ReleasableKeys(t.Context(), group, deadBlocks, limit)
		if err != nil {
			t.Fatal(err)
		}
		var keys []string
		for _, key := range found {
			if key.Topic != "orders" {
				t.Errorf("topic: got %q", key.Topic)
			}
			keys = append(keys, key.Key)
		}
		return keys
	}
	if got, want := releasable(true, 10), []string{"blocker gone", "waiting", "due", "due beside waiting"}; !slices.Equal(got, want) {
		t.Errorf("dead blocks: got %q, want %q", got, want)
	}
	if got, want := releasable(false, 10), []string{"blocker gone", "waiting", "dead", "due", "due beside waiting"}; !slices.Equal(got, want) {
		t.Errorf("dead does not block: got %q, want %q", got, want)
	}
	if got, want := releasable(false, 3), []string{"blocker gone", "waiting", "dead"}; !slices.Equal(got, want) {
		t.Errorf("limit 3: got %q, want %q", got, want)
	}
	s.hold(t, retry("16", "soon", short))
	eventually(t, "the retry falls due", func() bool { return slices.Contains(releasable(true, 10), "soon") })
}

func heldNextRetry[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	if _, found, err := s.Consumer.NextRetry(t.Context(), group); err != nil || found {
		t.Errorf("next retry of nothing: got %t, %v", found, err)
	}
	later, sooner := kept("1", "a", store.HeldRetry), kept("2", "b", store.HeldRetry)
	later.RetryIn, sooner.RetryIn = 2*time.Hour, time.Hour
	other := kept("3", "c", store.HeldRetry)
	other.Group, other.RetryIn = "points", time.Minute
	s.hold(t, kept("4", "a", store.HeldBlocked), kept("5", "d", store.HeldDead), later, sooner, other)
	until, found, err := s.Consumer.NextRetry(t.Context(), group)
	if err != nil || !found || until <= time.Minute || until > time.Hour {
		t.Errorf("next retry: got %v, %t, %v, want about 1h", until, found, err)
	}
	due := kept("6", "e", store.HeldRetry)
	due.RetryIn = -time.Minute
	s.hold(t, due)
	if until, found, err := s.Consumer.NextRetry(t.Context(), group); err != nil || !found || until > 0 {
		t.Errorf("one that is due: got %v, %t, %v", until, found, err)
	}
}

func heldListed[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	states := []store.HeldState{store.HeldWaiting, store.HeldBlocked, store.HeldRetry, store.HeldDead, store.HeldBlocked}
	for i, state := range states {
		s.hold(t, kept(fmt.Sprint(i), fmt.Sprintf("k%d", i%2), state))
	}
	other := kept("other", "k0", store.HeldDead)
	other.Group = "points"
	s.hold(t, other)
	all := s.listHeld(t, store.HeldFilter{})
	wantHeldIDs(t, "all", all, "0", "1", "2", "3", "4")
	wantHeldIDs(t, "by state", s.listHeld(t, store.HeldFilter{State: store.HeldBlocked}), "1", "4")
	wantHeldIDs(t, "by key", s.listHeld(t, store.HeldFilter{Key: "k1"}), "1", "3")
	wantHeldIDs(t, "by id", s.listHeld(t, store.HeldFilter{EventID: "2"}), "2")
	wantHeldIDs(t, "a page", s.listHeld(t, store.HeldFilter{After: all[1].Seq, Limit: 2}), "2", "3")
	wantHeldIDs(t, "all conditions", s.listHeld(t, store.HeldFilter{Key: "k0", State: store.HeldBlocked}), "4")
	count := func() store.HeldCounts {
		t.Helper()
		counts, err := s.Consumer.CountHeld(t.Context(), group)
		if err != nil {
			t.Fatal(err)
		}
		return counts
	}
	eventually(t, "the oldest has an age", func() bool { return count().OldestAge > 0 })
	counts := count()
	if counts.OldestAge > time.Hour {
		t.Errorf("oldest age: got %v", counts.OldestAge)
	}
	counts.OldestAge = 0
	if want := (store.HeldCounts{Waiting: 1, Blocked: 2, Retry: 1, Dead: 1}); counts != want {
		t.Errorf("counts: got %+v, want %+v", counts, want)
	}
	if none, err := s.Consumer.CountHeld(t.Context(), "nobody"); err != nil || none != (store.HeldCounts{}) {
		t.Errorf("counts of nobody: got %+v, %v", none, err)
	}
	if groups, err := s.Consumer.Groups(t.Context()); err != nil || !slices.Contains(groups, "points") || !slices.Contains(groups, group) {
		t.Errorf("groups: got %q, %v", groups, err)
	}
}
