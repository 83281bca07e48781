package memstore_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/memstore"
	"github.com/waybillhq/waybill/store/storetest"
)

func event(id string) waybill.Event {
	e := waybill.Event{ID: id, Type: "OrderPaid", Topic: "orders", Key: "k"}
	e.Normalize(time.Now())
	return e
}

func begin(t *testing.T, st *memstore.Store) *memstore.Tx {
	t.Helper()
	tx, err := st.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return tx
}

func appendIn(t *testing.T, st *memstore.Store, tx *memstore.Tx, id string) {
	t.Helper()
	results, err := st.Append(t.Context(), tx, []waybill.Event{event(id)})
	if err = errors.Join(append(results, err)...); err != nil {
		t.Fatal(err)
	}
}

func pending(t *testing.T, st *memstore.Store) int64 {
	t.Helper()
	counts, err := st.Counts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return counts.Pending
}

func TestRowsOfTheTestsOwn(t *testing.T) {
	st := memstore.New(nil)
	tx := begin(t, st)
	if err := tx.Set(t.Context(), "stock", "a", "1"); err != nil {
		t.Fatal(err)
	}
	if err := tx.Set(t.Context(), "stock", "b", "2"); err != nil {
		t.Fatal(err)
	}
	if len(st.Rows("stock")) != 0 {
		t.Error("uncommitted rows are visible")
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	tx = begin(t, st)
	if value, found, err := tx.Get(t.Context(), "stock", "a"); value != "1" || !found || err != nil {
		t.Errorf("get: got %q, %t, %v", value, found, err)
	}
	if err := tx.Delete(t.Context(), "stock", "a"); err != nil {
		t.Fatal(err)
	}
	if _, found, _ := tx.Get(t.Context(), "stock", "a"); found {
		t.Error("a deleted row is still there")
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if rows := st.Rows("stock"); len(rows) != 1 || rows["b"] != "2" {
		t.Errorf("rows: got %v, want b alone", rows)
	}
}

func TestConcurrentUpdatesLoseNothing(t *testing.T) {
	st := memstore.New(nil)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			tx, err := st.Begin(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			if err := tx.Update(t.Context(), "stock", "a", func(old string, _ bool) string {
				n, _ := strconv.Atoi(old)
				return strconv.Itoa(n + 1)
			}); err != nil {
				t.Error(err)
			}
			if err := tx.Commit(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got := st.Rows("stock")["a"]; got != "20" {
		t.Errorf("got %s updates, want 20", got)
	}
}

func TestWaitingEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memstore.New(nil)
		first, second := begin(t, st), begin(t, st)
		appendIn(t, st, first, "1")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start := time.Now()
		if _, err := st.Append(ctx, second, []waybill.Event{event("1")}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got error %v, want the deadline's", err)
		}
		if waited := time.Since(start); waited != time.Minute {
			t.Errorf("waited %v, want 1m", waited)
		}
		if err := errors.Join(first.Commit(t.Context()), second.Rollback(t.Context())); err != nil {
			t.Error(err)
		}
	})
}

func TestWaitingEndsWithTheTransactionsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memstore.New(nil)
		ctx, cancel := context.WithCancel(t.Context())
		first := begin(t, st)
		second, err := st.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := first.Set(t.Context(), "t", "a", "1"); err != nil {
			t.Fatal(err)
		}
		waited := make(chan error)
		go func() { waited <- second.Set(t.Context(), "t", "a", "2") }()
		synctest.Wait()
		cancel()
		if err := <-waited; !errors.Is(err, context.Canceled) {
			t.Errorf("got error %v, want the context's", err)
		}
		if err := first.Commit(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestDeadlockIsBroken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memstore.New(nil)
		first, second := begin(t, st), begin(t, st)
		if err := errors.Join(first.Set(t.Context(), "t", "a", "1"), second.Set(t.Context(), "t", "b", "2")); err != nil {
			t.Fatal(err)
		}
		waited := make(chan error)
		go func() { waited <- first.Set(t.Context(), "t", "b", "1") }()
		synctest.Wait()
		if err := second.Set(t.Context(), "t", "a", "2"); !errors.Is(err, memstore.ErrDeadlock) {
			t.Errorf("second: got error %v, want ErrDeadlock", err)
		}
		if err := <-waited; err != nil {
			t.Errorf("first: %v", err)
		}
		if err := second.Commit(t.Context()); !errors.Is(err, memstore.ErrDeadlock) {
			t.Errorf("commit of the loser: got error %v, want ErrDeadlock", err)
		}
		if err := first.Commit(t.Context()); err != nil {
			t.Error(err)
		}
		if rows := st.Rows("t"); rows["a"] != "1" || rows["b"] != "1" {
			t.Errorf("rows: got %v, want the first's", rows)
		}
	})
}

func TestAbortEndsAWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memstore.New(nil)
		key := store.HeldKeyRef{Topic: "orders", Key: "k"}
		first, err := st.BeginInbox(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		second, err := st.BeginInbox(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := first.LockKey(t.Context(), "g", key); err != nil {
			t.Fatal(err)
		}
		waited := make(chan error)
		go func() { waited <- second.LockKey(t.Context(), "g", key) }()
		synctest.Wait()
		second.Abort()
		if err := <-waited; !errors.Is(err, store.ErrAborted) {
			t.Errorf("got error %v, want ErrAborted", err)
		}
		if err := errors.Join(first.Rollback(t.Context()), second.Rollback(t.Context())); err != nil {
			t.Error(err)
		}
	})
}

func TestLockIsReleasedByRollbackToSavepoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memstore.New(nil)
		first, err := st.BeginInbox(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := first.Savepoint(t.Context()); err != nil {
			t.Fatal(err)
		}
		appendIn(t, st, first.Handle(), "1")
		if err := first.RollbackTo(t.Context()); err != nil {
			t.Fatal(err)
		}
		second := begin(t, st)
		appendIn(t, st, second, "1") // does not wait: the bubble would report a deadlock
		if err := errors.Join(second.Commit(t.Context()), first.Commit(t.Context())); err != nil {
			t.Fatal(err)
		}
		if got := pending(t, st); got != 1 {
			t.Errorf("pending: got %d, want 1", got)
		}
	})
}

func TestLeasesAndRelaysExpireByTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memstore.New(nil)
		beat := store.Heartbeat{Owner: "a", TTL: 10 * time.Second}
		if _, _, err := st.Renew(t.Context(), beat); err != nil {
			t.Fatal(err)
		}
		leases, err := st.Claim(t.Context(), "a", 10*time.Second, 1)
		if err != nil {
			t.Fatal(err)
		}
		beat.Held = leases
		time.Sleep(9 * time.Second)
		if held, _, err := st.Renew(t.Context(), beat); err != nil || len(held) != 1 {
			t.Errorf("after 9s: held %v, %v, want the lane", held, err)
		}
		time.Sleep(10 * time.Second)
		err = st.Apply(t.Context(), store.Guard{Owner: "a", Lanes: leases}, store.Changes{})
		if !errors.Is(err, store.ErrStale) {
			t.Errorf("at the expiry: got error %v, want ErrStale", err)
		}
		time.Sleep(time.Hour)
		if _, live, err := st.Renew(t.Context(), store.Heartbeat{Owner: "b", TTL: time.Second}); err != nil || live != 1 {
			t.Errorf("live: got %d, %v, want 1", live, err)
		}
		if relays, err := st.ListRelays(t.Context()); err != nil || len(relays) != 1 {
			t.Errorf("relays an hour later: got %v, %v, want b alone", relays, err)
		}
	})
}

func TestErrorsBeforeAndAnswersLost(t *testing.T) {
	st := memstore.New(nil)
	away := errors.New("away")
	tx := begin(t, st)
	appendIn(t, st, tx, "1")
	st.SetError(func(op string) error {
		if op == "commit" {
			return away
		}
		return nil
	})
	if err := tx.Commit(t.Context()); !errors.Is(err, away) {
		t.Errorf("commit: got error %v, want the injected one", err)
	}
	st.SetError(nil)
	if got := pending(t, st); got != 0 {
		t.Errorf("pending after a commit that failed: got %d, want 0", got)
	}

	tx = begin(t, st)
	appendIn(t, st, tx, "1")
	st.SetLostAnswer(func(op string) error {
		if op == "commit" {
			return away
		}
		return nil
	})
	if err := tx.Commit(t.Context()); !errors.Is(err, away) {
		t.Errorf("commit: got error %v, want the injected one", err)
	}
	st.SetLostAnswer(nil)
	if got := pending(t, st); got != 1 {
		t.Errorf("pending after a commit whose answer was lost: got %d, want 1", got)
	}
}

func TestReadOnly(t *testing.T) {
	st := memstore.New(nil)
	st.SetError(memstore.ReadOnly)
	if got := pending(t, st); got != 0 {
		t.Errorf("pending: got %d", got)
	}
	if _, err := st.Walk(t.Context(), store.WalkRequest{Lanes: []store.LaneCursor{{Lane: 1}}}); err != nil {
		t.Errorf("walk: %v", err)
	}
	for name, err := range map[string]error{
		"ping":  st.Ping(t.Context()),
		"apply": st.Apply(t.Context(), store.Guard{}, store.Changes{}),
		"commit": func() error {
			tx, err := st.Begin(t.Context())
			return errors.Join(err, tx.Commit(t.Context()))
		}(),
	} {
		if !errors.Is(err, memstore.ErrReadOnly) {
			t.Errorf("%s: got error %v, want ErrReadOnly", name, err)
		}
	}
}

// TestLongQueue would not end in time if leaving the queue cost as much as
// the queue is long.
func TestLongQueue(t *testing.T) {
	st := memstore.New(nil)
	const n = 50_000
	events := make([]waybill.Event, n)
	for i := range events {
		events[i] = event(strconv.Itoa(i)) // one key, one lane
	}
	tx := begin(t, st)
	if _, err := st.Append(t.Context(), tx, events); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	leases, err := st.Claim(t.Context(), "a", time.Hour, store.Lanes)
	if err != nil {
		t.Fatal(err)
	}
	cursors := make([]store.LaneCursor, store.Lanes)
	for lane := range cursors {
		cursors[lane].Lane = lane
	}
	next := int64(1)
	for {
		rows, err := storetest.Hot(t.Context(), st, store.WalkRequest{Lanes: cursors, Limit: 100})
		if err != nil {
			t.Fatal(err)
		}
		if len(rows) == 0 {
			break
		}
		var changes store.Changes
		for _, row := range rows {
			if row.ID != next {
				t.Fatalf("got row %d, want %d", row.ID, next)
			}
			next++
			changes.Settled = append(changes.Settled, store.SettledChange{Change: store.Change{ID: row.ID, EventID: row.Event.ID}, Outcome: store.StatusSent})
		}
		if err := st.Apply(t.Context(), store.Guard{Owner: "a", Lanes: leases}, changes); err != nil {
			t.Fatal(err)
		}
	}
	if next != n+1 {
		t.Errorf("settled %d, want %d", next-1, n)
	}
}
