package storetest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
)

func inboxCases[TX any]() []testCase[TX] {
	return []testCase[TX]{
		{"the first mark wins, later ones are counted", inboxMark[TX]},
		{"many are marked at once, and marks are taken back", inboxMarkAll[TX]},
		{"a rollback forgets the mark", inboxRollback[TX]},
		{"groups and ids do not meet", inboxGroups[TX]},
		{"asking may count", inboxAsk[TX]},
		{"a savepoint undoes one event of a batch", inboxSavepoint[TX]},
		{"a savepoint survives a failed statement", inboxFailedStatement[TX]},
		{"marks and outgoing events commit together", inboxOutgoing[TX]},
		{"an id that another transaction marks is waited for", inboxConcurrentMark[TX]},
		{"after abort nothing works and nothing stays", inboxAbort[TX]},
		{"abort cuts off a handler that is at work", inboxAbortBusy[TX]},
		{"the transaction ends with its context", inboxContext[TX]},
	}
}

const group = "stock"

func (s *suite[TX]) beginInbox(t testing.TB) store.InboxTx[TX] {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	tx, err := s.Consumer.BeginInbox(ctx)
	if err != nil {
		t.Fatalf("begin inbox: %v", err)
	}
	t.Cleanup(func() { _ = tx.Rollback(ctx) })
	return tx
}

func (s *suite[TX]) commitInbox(t testing.TB, tx store.InboxTx[TX]) {
	t.Helper()
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatalf("commit: %v", err)
	}
}

func delivered(id string) store.Consumed {
	return store.Consumed{Group: group, Event: waybill.Event{ID: id, Type: "OrderPaid"}, Outcome: store.Applied, Topic: "orders"}
}

func mark[TX any](t testing.TB, tx store.InboxTx[TX], id string) bool {
	t.Helper()
	first, err := tx.MarkConsumed(t.Context(), delivered(id))
	if err != nil {
		t.Fatalf("mark %s: %v", id, err)
	}
	return first
}

// consume marks an event in a transaction of its own.
func (s *suite[TX]) consume(t testing.TB, consumed store.Consumed) bool {
	t.Helper()
	tx := s.beginInbox(t)
	first, err := tx.MarkConsumed(t.Context(), consumed)
	if err != nil {
		t.Fatalf("mark %s: %v", consumed.Event.ID, err)
	}
	s.commitInbox(t, tx)
	return first
}

func (s *suite[TX]) consumedBy(t testing.TB, id string) []store.Consumed {
	t.Helper()
	found, err := s.Consumer.FindConsumed(t.Context(), id)
	if err != nil {
		t.Fatalf("find consumed: %v", err)
	}
	return found
}

func (s *suite[TX]) wantConsumed(t testing.TB, consumed bool, ids ...string) {
	t.Helper()
	for _, id := range ids {
		if got := len(s.consumedBy(t, id)) > 0; got != consumed {
			t.Errorf("%s consumed: got %t, want %t", id, got, consumed)
		}
	}
}

func inboxMark[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	want := store.Consumed{
		Group: "stock'ü",
		Event: waybill.Event{
			ID: "it's 1", Type: "OrderPaid", TenantID: "t", AggregateType: "order", AggregateID: "O-1", AggregateVersion: 3,
		},
		Outcome: store.Stale, Topic: "orders", Partition: 7, Position: 1 << 40,
	}
	if !s.consume(t, want) {
		t.Error("the first mark was not first")
	}
	again := want
	again.Outcome = store.Applied
	for range 2 {
		if s.consume(t, again) {
			t.Error("a later mark was first")
		}
	}
	found := s.consumedBy(t, want.Event.ID)
	if len(found) != 1 {
		t.Fatalf("find consumed: got %d rows, want 1", len(found))
	}
	got := found[0]
	if got.ConsumedAt.IsZero() || got.ConsumedAt.Location() != time.UTC {
		t.Errorf("consumed at %v, want a time in UTC", got.ConsumedAt)
	}
	got.ConsumedAt, got.Event.OccurredAt = time.Time{}, time.Time{}
	want.Duplicates = 2
	if g, w := fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want); g != w {
		t.Errorf("consumed:\n got %s\nwant %s", g, w)
	}
	tx := s.beginInbox(t)
	if !mark(t, tx, "2") || mark(t, tx, "2") {
		t.Error("two marks in one transaction: want the first to be first, and it alone")
	}
	s.commitInbox(t, tx)
}

func inboxMarkAll[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	s.consume(t, delivered("2"))
	tx := s.beginInbox(t)
	mark(t, tx, "3")
	events := []store.Consumed{delivered("4"), delivered("3"), delivered("2"), delivered("it's ü \x00\xff")}
	events[0].Outcome, events[0].Event.TenantID, events[0].Event.AggregateType = store.Stale, "t", "order"
	events[0].Event.AggregateID, events[0].Event.AggregateVersion = "o", 7
	events[0].Topic, events[0].Partition, events[0].Position = "orders", 3, 1<<40
	first, err := tx.MarkAll(t.Context(), events)
	if want := []bool{true, false, false, true}; err != nil || !slices.Equal(first, want) {
		t.Errorf("first: got %v, %v, want %v", first, err, want)
	}
	if first, err := tx.MarkAll(t.Context(), nil); err != nil || len(first) != 0 {
		t.Errorf("mark none: got %v, %v", first, err)
	}
	if first, err := tx.MarkAll(t.Context(), []store.Consumed{delivered("5"), delivered("6")}); err != nil || !first[0] || !first[1] {
		t.Errorf("two that are new: got %v, %v", first, err)
	}
	mixed := []store.Consumed{delivered("7"), delivered("8"), delivered("3"), delivered("9")}
	mixed[1].Event.Type, mixed[3].Outcome = "OrderCancelled", store.ConsumedSkipped
	first, err = tx.MarkAll(t.Context(), mixed)
	if want := []bool{true, true, false, true}; err != nil || !slices.Equal(first, want) {
		t.Errorf("one of several kinds is not new: got %v, %v, want %v", first, err, want)
	}
	if err := tx.Unmark(t.Context(), group, []string{"6", events[3].Event.ID}); err != nil {
		t.Errorf("unmark: %v", err)
	}
	if !mark(t, tx, "6") {
		t.Error("a mark that was taken back is there")
	}
	if err := tx.Unmark(t.Context(), group, []string{"6"}); err != nil {
		t.Errorf("unmark: %v", err)
	}
	s.commitInbox(t, tx)
	s.wantConsumed(t, true, "2", "3", "4", "5", "7", "8", "9")
	s.wantConsumed(t, false, "6", events[3].Event.ID)
	for id, want := range map[string]int64{"2": 1, "3": 2, "4": 0, "7": 0, "8": 0, "9": 0} {
		if got := s.consumedBy(t, id)[0].Duplicates; got != want {
			t.Errorf("duplicates of %s: got %d, want %d", id, got, want)
		}
	}
	s.inInbox(t, func(tx store.InboxTx[TX]) {
		if err := tx.Unmark(t.Context(), group, []string{"5"}); err != nil {
			t.Errorf("unmark what is committed: %v", err)
		}
	})
	s.wantConsumed(t, false, "5")
	got := s.consumedBy(t, "4")[0]
	got.ConsumedAt = time.Time{}
	if !reflect.DeepEqual(got, events[0]) {
		t.Errorf("got %+v, want %+v", got, events[0])
	}
}

func inboxRollback[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	tx := s.beginInbox(t)
	mark(t, tx, "1")
	s.wantConsumed(t, false, "1")
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.wantConsumed(t, false, "1")
	if !s.consume(t, delivered("1")) {
		t.Error("the mark outlived its rollback")
	}
	tx = s.beginInbox(t)
	mark(t, tx, "2")
	s.commitInbox(t, tx)
	if err := tx.Rollback(t.Context()); err != nil {
		t.Errorf("rollback after commit: %v", err)
	}
	s.wantConsumed(t, true, "2")
	if err := tx.Commit(t.Context()); err == nil {
		t.Error("a second commit succeeded")
	}
}

func inboxGroups[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	for _, name := range []string{"a", "A", "a "} {
		for _, id := range []string{"x", "X", "x "} {
			c := delivered(id)
			c.Group = name
			if !s.consume(t, c) {
				t.Errorf("group %q, id %q met another", name, id)
			}
		}
	}
	found := s.consumedBy(t, "x ")
	var names []string
	for _, c := range found {
		names = append(names, c.Group)
	}
	slices.Sort(names)
	if !slices.Equal(names, []string{"A", "a", "a "}) {
		t.Errorf("groups of one id: got %q", names)
	}
	groups, err := s.Consumer.Groups(t.Context())
	slices.Sort(groups)
	if err != nil || !slices.Equal(groups, names) {
		t.Errorf("groups: got %q, %v, want %q", groups, err, names)
	}
}

func inboxAsk[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	s.consume(t, delivered("1"))
	tx := s.beginInbox(t)
	for _, c := range []struct {
		group, id   string
		count, want bool
	}{
		{group, "1", false, true},
		{group, "1", true, true},
		{group, "2", true, false},
		{"points", "1", true, false},
		{group, "own", false, false},
	} {
		got, err := tx.IsConsumed(t.Context(), c.group, c.id, c.count)
		if err != nil || got != c.want {
			t.Errorf("group %s, id %s: got %t, %v, want %t", c.group, c.id, got, err, c.want)
		}
	}
	mark(t, tx, "own")
	if got, err := tx.IsConsumed(t.Context(), group, "own", false); err != nil || !got {
		t.Errorf("the transaction's own mark: got %t, %v", got, err)
	}
	s.commitInbox(t, tx)
	if got := s.consumedBy(t, "1")[0].Duplicates; got != 1 {
		t.Errorf("duplicates: got %d, want 1", got)
	}
	s.wantConsumed(t, false, "2")
}

func inboxSavepoint[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	s.consume(t, delivered("3"))
	outgoing := s.events("a", "b", "c", "d", "e")
	tx := s.beginInbox(t)
	step := func(what string, do func(context.Context) error) {
		t.Helper()
		if err := do(t.Context()); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	for i := range 5 {
		step("savepoint", tx.Savepoint)
		if first, want := mark(t, tx, fmt.Sprint(i)), i != 3; first != want {
			t.Errorf("event %d: first %t, want %t", i, first, want)
		}
		s.appendTo(t, tx.Handle(), outgoing[i])
		if i == 1 || i == 3 {
			step("rollback to savepoint", tx.RollbackTo)
		} else {
			step("release savepoint", tx.Release)
		}
	}
	// The one that failed is handled again, as held ones are.
	step("savepoint", tx.Savepoint)
	if !mark(t, tx, "1") {
		t.Error("the mark outlived its savepoint")
	}
	step("rollback to savepoint", tx.RollbackTo)
	s.commitInbox(t, tx)
	s.wantConsumed(t, true, "0", "2", "3", "4")
	s.wantConsumed(t, false, "1")
	if got := s.consumedBy(t, "3")[0].Duplicates; got != 0 {
		t.Errorf("a duplicate counted within the savepoint stayed: %d", got)
	}
	s.wantHot(t, outgoing[0].ID, outgoing[2].ID, outgoing[4].ID)
}

func inboxFailedStatement[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	tx := s.beginInbox(t)
	mark(t, tx, "1")
	if err := tx.Savepoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	mark(t, tx, "2")
	bad := s.plain("a")
	bad.Topic = ""
	if err := s.Exec(t.Context(), tx.Handle(), Statement{Event: bad}); err == nil {
		t.Fatal("the statement did not fail: the case proves nothing")
	}
	// Either the transaction says that it is no longer sound, or it goes on.
	if sound := tx.Sound(); sound == nil {
		mark(t, tx, "more")
	} else if _, err := tx.MarkConsumed(t.Context(), delivered("more")); err == nil {
		t.Errorf("not sound, %v, and a statement succeeded", sound)
	}
	if err := tx.RollbackTo(t.Context()); err != nil {
		t.Fatalf("rollback to savepoint after a failed statement: %v", err)
	}
	if err := tx.Sound(); err != nil {
		t.Errorf("after the rollback to the savepoint: %v", err)
	}
	mark(t, tx, "3")
	s.commitInbox(t, tx)
	s.wantConsumed(t, true, "1", "3")
	s.wantConsumed(t, false, "2")
}

func inboxOutgoing[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	lost, kept := s.event("a"), s.event("a")
	tx := s.beginInbox(t)
	mark(t, tx, "1")
	s.appendTo(t, tx.Handle(), lost)
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.wantHot(t)
	tx = s.beginInbox(t)
	mark(t, tx, "1")
	s.appendTo(t, tx.Handle(), kept)
	s.wantHot(t)
	s.commitInbox(t, tx)
	s.wantHot(t, kept.ID)
	s.wantConsumed(t, true, "1")
}

func inboxConcurrentMark[TX any](t *testing.T, s *suite[TX]) {
	s.needsTwoWriters(t)
	for _, commits := range []bool{true, false} {
		t.Run(fmt.Sprintf("first commits %t", commits), func(t *testing.T) {
			s.open(t)
			one, other := s.beginInbox(t), s.beginInbox(t)
			mark(t, one, "1")
			type answer struct {
				first bool
				err   error
			}
			answers := make(chan answer, 1)
			go func() {
				first, err := other.MarkConsumed(t.Context(), delivered("1"))
				answers <- answer{first, err}
			}()
			stillWaiting(t, "the second mark", answers)
			if commits {
				s.commitInbox(t, one)
			} else if err := one.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			got := received(t, "the second mark", answers)
			if got.err != nil || got.first == commits {
				t.Fatalf("second mark: got first %t, %v, want %t", got.first, got.err, !commits)
			}
			s.commitInbox(t, other)
			want := int64(0)
			if commits {
				want = 1
			}
			if found := s.consumedBy(t, "1"); len(found) != 1 || found[0].Duplicates != want {
				t.Errorf("row: got %+v, want %d duplicates", found, want)
			}
		})
	}
}

func inboxAbort[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	outgoing := s.event("a")
	tx := s.beginInbox(t)
	handle := tx.Handle()
	mark(t, tx, "1")
	s.appendTo(t, handle, outgoing)
	tx.Abort()
	tx.Abort() // twice does no harm
	ctx := t.Context()
	for name, do := range map[string]func() error{
		"mark":        func() error { _, err := tx.MarkConsumed(ctx, delivered("2")); return err },
		"is consumed": func() error { _, err := tx.IsConsumed(ctx, group, "1", false); return err },
		"keys held": func() error {
			_, err := tx.KeysHeld(ctx, group, []store.HeldKeyRef{{Topic: "t", Key: "k"}})
			return err
		},
		"lock key": func() error { return tx.LockKey(ctx, group, store.HeldKeyRef{Topic: "t", Key: "k"}) },
		"held of key": func() error {
			_, err := tx.HeldOfKey(ctx, group, store.HeldKeyRef{Topic: "t", Key: "k"}, 1)
			return err
		},
		"hold":          func() error { _, err := tx.Hold(ctx, kept("1", "k", store.HeldDead)); return err },
		"update held":   func() error { _, err := tx.UpdateHeld(ctx, kept("1", "k", store.HeldDead)); return err },
		"delete held":   func() error { _, err := tx.DeleteHeld(ctx, group, "1"); return err },
		"savepoint":     func() error { return tx.Savepoint(ctx) },
		"release":       func() error { return tx.Release(ctx) },
		"rollback to":   func() error { return tx.RollbackTo(ctx) },
		"commit":        func() error { return tx.Commit(ctx) },
		"second commit": func() error { return tx.Commit(ctx) },
	} {
		if err := do(); !errors.Is(err, store.ErrAborted) {
			t.Errorf("%s: got error %v, want ErrAborted", name, err)
		}
	}
	if err := s.appendIn(ctx, handle, s.events("b")); err == nil {
		t.Error("the handler's transaction still works")
	}
	if err := tx.Rollback(ctx); err != nil {
		t.Errorf("rollback: %v", err)
	}
	s.wantHot(t)
	s.wantConsumed(t, false, "1", "2")
	if !s.consume(t, delivered("1")) { // no lock was left behind
		t.Error("the mark outlived the abort")
	}
}

func inboxAbortBusy[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	const most = 1_000_000 // far more than fit before the abort
	e := s.event("a")
	tx := s.beginInbox(t)
	mark(t, tx, "1")
	started, done := make(chan struct{}), make(chan error, 1)
	go func() {
		// A handler that looks at no context and goes on until it is refused.
		ctx := context.WithoutCancel(t.Context())
		for i := range most {
			e.ID = waybill.NewID()
			if err := s.appendIn(ctx, tx.Handle(), []waybill.Event{e}); err != nil {
				done <- err
				return
			}
			if i == 0 {
				close(started)
			}
		}
		done <- nil
	}()
	received(t, "the handler's first statement", started)
	tx.Abort()
	err := tx.Commit(t.Context())
	if !errors.Is(err, store.ErrAborted) {
		t.Errorf("commit: got error %v, want ErrAborted", err)
	}
	if err := received(t, "the handler's end", done); err == nil {
		t.Error("the handler was never refused")
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Errorf("rollback: %v", err)
	}
	s.wantHot(t)
	s.wantConsumed(t, false, "1")
}

func inboxContext[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	tx, err := s.Consumer.BeginInbox(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if first, err := tx.MarkConsumed(ctx, delivered("1")); err != nil || !first {
		t.Fatalf("mark: got %t, %v", first, err)
	}
	s.appendTo(t, tx.Handle(), s.event("a"))
	cancel()
	// The locks are free although nobody rolled back.
	if !s.consume(t, delivered("1")) {
		t.Error("the mark was committed")
	}
	if err := tx.Commit(t.Context()); err == nil {
		t.Error("commit succeeded after the context had ended")
	}
	s.wantHot(t)
	_ = tx.Rollback(t.Context())
}
