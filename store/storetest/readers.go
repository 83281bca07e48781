package storetest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/waybillhq/waybill/store"
)

func readerCases[TX any]() []testCase[TX] {
	return []testCase[TX]{
		{"a partition has one reader", readerClaim[TX]},
		{"concurrent claims give one winner", readerConcurrent[TX]},
		{"an expired partition changes readers, as not clean", readerExpiry[TX]},
		{"a broker's assignment overrides a claim", readerForce[TX]},
		{"a clean stop is remembered", readerClean[TX]},
		{"a renewal extends what is still held, and counts members", readerRenew[TX]},
		{"the crash mark counts and outlives its reader", readerMark[TX]},
		{"a former reader changes nothing", readerStale[TX]},
		{"leaving frees all as not clean", readerLeave[TX]},
	}
}

func partition(n int32) store.ReaderKey {
	return store.ReaderKey{Group: group, Topic: "orders", Partition: n}
}

func (s *suite[TX]) claimReader(t testing.TB, key store.ReaderKey, owner string, ttl time.Duration, force bool) (store.ReaderState, bool) {
	t.Helper()
	state, ok, err := s.Consumer.ClaimReader(t.Context(), key, owner, ttl, force)
	if err != nil {
		t.Fatalf("claim reader: %v", err)
	}
	return state, ok
}

func (s *suite[TX]) mustClaim(t testing.TB, key store.ReaderKey, owner string, ttl time.Duration) store.ReaderState {
	t.Helper()
	state, ok := s.claimReader(t, key, owner, ttl, false)
	if !ok {
		t.Fatalf("%s could not claim %+v: %+v", owner, key, state)
	}
	return state
}

func (s *suite[TX]) reader(t testing.TB, key store.ReaderKey) store.ReaderState {
	t.Helper()
	states, err := s.Consumer.ListReaders(t.Context(), key.Group)
	if err != nil {
		t.Fatalf("list readers: %v", err)
	}
	for _, state := range states {
		if state.ReaderKey == key {
			return state
		}
	}
	t.Fatalf("no row of %+v", key)
	panic("unreachable")
}

func (s *suite[TX]) releaseReader(t testing.TB, state store.ReaderState, owner string, clean bool) {
	t.Helper()
	if err := s.Consumer.ReleaseReader(t.Context(), state.ReaderKey, owner, state.Fence, clean); err != nil {
		t.Fatalf("release reader: %v", err)
	}
}

func readerClaim[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	key := partition(3)
	state := s.mustClaim(t, key, "a", time.Hour)
	if state.ReaderKey != key || state.Owner != "a" || state.Fence <= 0 || state.EventID != "" || state.Tries != 0 {
		t.Errorf("first claim: got %+v", state)
	}
	if !state.Clean {
		t.Error("a partition that nobody read counts as not clean")
	}
	if _, ok := s.claimReader(t, key, "b", time.Hour, false); ok {
		t.Error("a second reader got the partition")
	}
	got := s.reader(t, key)
	if got.Owner != "a" || got.Fence != state.Fence || got.Clean || got.ExpiresIn <= time.Minute || got.ExpiresIn > time.Hour {
		t.Errorf("row: got %+v, want it a's, and not clean while it is read", got)
	}
	for _, other := range []store.ReaderKey{
		{Group: group, Topic: "orders", Partition: 4}, {Group: group, Topic: "Orders", Partition: 3}, {Group: "points", Topic: "orders", Partition: 3},
	} {
		s.mustClaim(t, other, "b", time.Hour)
	}
	again := s.mustClaim(t, key, "a", time.Hour) // its own already
	if again.Fence < state.Fence || s.reader(t, key).Fence != again.Fence {
		t.Errorf("claim of one's own: got fence %d after %d", again.Fence, state.Fence)
	}
	states, err := s.Consumer.ListReaders(t.Context(), group)
	if err != nil || len(states) != 3 {
		t.Errorf("readers of the group: got %d, %v, want 3", len(states), err)
	}
	if groups, err := s.Consumer.Groups(t.Context()); err != nil || !slices.Contains(groups, "points") {
		t.Errorf("groups: got %q, %v", groups, err)
	}
}

func readerConcurrent[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	var mu sync.Mutex
	var winners []string
	var errs error
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			name := fmt.Sprintf("reader-%d", i)
			_, ok, err := s.Consumer.ClaimReader(t.Context(), partition(0), name, time.Hour, false)
			mu.Lock()
			defer mu.Unlock()
			errs = errors.Join(errs, err)
			if ok {
				winners = append(winners, name)
			}
		})
	}
	wg.Wait()
	if errs != nil || len(winners) != 1 {
		t.Fatalf("winners: got %v, %v, want one", winners, errs)
	}
	if got := s.reader(t, partition(0)).Owner; got != winners[0] {
		t.Errorf("owner: got %s, want %s", got, winners[0])
	}
}

func readerExpiry[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	before := s.mustClaim(t, partition(0), "a", short)
	var after store.ReaderState
	eventually(t, "the claim expires", func() (ok bool) {
		after, ok = s.claimReader(t, partition(0), "b", time.Hour, false)
		return ok
	})
	if after.Fence <= before.Fence || after.Clean {
		t.Errorf("after an expiry: got %+v, want a greater fence than %d, and not clean", after, before.Fence)
	}
	if held, _, err := s.Consumer.RenewReaders(t.Context(), group, "a", time.Hour); err != nil || len(held) != 0 {
		t.Errorf("the former reader still holds %v, %v", held, err)
	}
}

func readerForce[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	before := s.mustClaim(t, partition(0), "a", time.Hour)
	after, ok := s.claimReader(t, partition(0), "b", time.Hour, true)
	if !ok || after.Owner != "b" || after.Fence <= before.Fence || after.Clean {
		t.Errorf("forced claim: got %+v, %t, want it b's, with a greater fence, and not clean", after, ok)
	}
}

func readerClean[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	for _, clean := range []bool{true, false, true} {
		state := s.mustClaim(t, partition(0), "a", time.Hour)
		s.releaseReader(t, state, "a", clean)
		if got := s.reader(t, partition(0)); got.Owner != "" || got.Clean != clean {
			t.Errorf("released, clean %t: got %+v", clean, got)
		}
		next := s.mustClaim(t, partition(0), "b", time.Hour)
		if next.Clean != clean || next.Fence <= state.Fence {
			t.Errorf("next reader, clean %t: got %+v", clean, next)
		}
		s.releaseReader(t, next, "b", clean)
	}
}

func readerRenew[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	renew := func(owner string, ttl time.Duration) ([]store.ReaderState, int) {
		t.Helper()
		held, live, err := s.Consumer.RenewReaders(t.Context(), group, owner, ttl)
		if err != nil {
			t.Fatalf("renew readers: %v", err)
		}
		return held, live
	}
	if held, live := renew("a", time.Hour); len(held) != 0 || live != 1 {
		t.Errorf("alone: got %v, live %d, want none, 1", held, live)
	}
	s.mustClaim(t, partition(0), "a", time.Minute)
	s.mustClaim(t, partition(1), "a", time.Minute)
	s.mustClaim(t, partition(2), "b", time.Minute)
	if _, live := renew("b", time.Hour); live != 2 {
		t.Errorf("live members: got %d, want 2", live)
	}
	renew("b", short)
	if _, live, err := s.Consumer.RenewReaders(t.Context(), "points", "c", time.Hour); err != nil || live != 1 {
		t.Errorf("another group's members: got %d, %v, want 1", live, err)
	}
	held, _ := renew("a", time.Hour)
	var partitions []int32
	for _, state := range held {
		partitions = append(partitions, state.Partition)
		if state.Owner != "a" || state.ExpiresIn <= time.Minute {
			t.Errorf("held: got %+v", state)
		}
	}
	slices.Sort(partitions)
	if !slices.Equal(partitions, []int32{0, 1}) {
		t.Errorf("held partitions: got %v, want 0 and 1", partitions)
	}
	eventually(t, "the other member expires", func() bool {
		_, live := renew("a", time.Hour)
		return live == 1
	})
	// What expired cannot be renewed, though nobody took it.
	s.mustClaim(t, partition(5), "d", short)
	eventually(t, "the claim expires", func() bool { return s.reader(t, partition(5)).ExpiresIn <= 0 })
	if held, _ := renew("d", time.Hour); len(held) != 0 {
		t.Errorf("an expired claim was renewed: %v", held)
	}
}

func readerMark[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	state := s.mustClaim(t, partition(0), "a", time.Hour)
	try := func(owner string, fence int64, id string, want int) {
		t.Helper()
		tries, err := s.Consumer.MarkReader(t.Context(), partition(0), owner, fence, id)
		if err != nil || tries != want {
			t.Errorf("mark %q: got %d, %v, want %d", id, tries, err, want)
		}
	}
	try("a", state.Fence, "it's 1", 1)
	try("a", state.Fence, "it's 1", 2)
	try("a", state.Fence, "2", 1)
	// The process dies while it handles 2; another takes over.
	next, ok := s.claimReader(t, partition(0), "b", time.Hour, true)
	if !ok || next.EventID != "2" || next.Tries != 1 || next.Clean {
		t.Fatalf("take-over: got %+v, want the mark of 2", next)
	}
	try("b", next.Fence, "2", 2)
	try("b", next.Fence, "", 0)
	if got := s.reader(t, partition(0)); got.EventID != "" || got.Tries != 0 {
		t.Errorf("cleared mark: got %+v", got)
	}
	try("b", next.Fence, "2", 1)
}

func readerStale[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	before := s.mustClaim(t, partition(0), "a", time.Hour)
	after, _ := s.claimReader(t, partition(0), "b", time.Hour, true)
	for _, c := range []struct {
		name  string
		key   store.ReaderKey
		owner string
		fence int64
	}{
		{"former reader", partition(0), "a", before.Fence},
		{"right owner, wrong fence", partition(0), "b", before.Fence},
		{"wrong owner, right fence", partition(0), "a", after.Fence},
		{"no such partition", partition(9), "a", 1},
	} {
		if _, err := s.Consumer.MarkReader(t.Context(), c.key, c.owner, c.fence, "late"); !errors.Is(err, store.ErrStale) {
			t.Errorf("%s: mark: got error %v, want ErrStale", c.name, err)
		}
		// Whether a release that comes too late is told or not, it changes nothing.
		if err := s.Consumer.ReleaseReader(t.Context(), c.key, c.owner, c.fence, true); err != nil && !errors.Is(err, store.ErrStale) {
			t.Errorf("%s: release: %v", c.name, err)
		}
	}
	if got := s.reader(t, partition(0)); got.Owner != "b" || got.Fence != after.Fence || got.Clean || got.EventID != "" {
		t.Errorf("row: got %+v, want b's, unchanged", got)
	}
}

func readerLeave[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	if _, _, err := s.Consumer.RenewReaders(t.Context(), group, "a", time.Hour); err != nil {
		t.Fatal(err)
	}
	s.mustClaim(t, partition(0), "a", time.Hour)
	s.mustClaim(t, partition(1), "b", time.Hour)
	elsewhere := store.ReaderKey{Group: "points", Topic: "orders", Partition: 0}
	s.mustClaim(t, elsewhere, "a", time.Hour)
	if err := s.Consumer.LeaveReaders(t.Context(), group, "a"); err != nil {
		t.Fatal(err)
	}
	if got := s.reader(t, partition(0)); got.Owner != "" || got.Clean {
		t.Errorf("left partition: got %+v, want it free and not clean", got)
	}
	if got := s.reader(t, partition(1)); got.Owner != "b" {
		t.Errorf("another's partition: got %+v", got)
	}
	if got := s.reader(t, elsewhere); got.Owner != "a" {
		t.Errorf("another group's partition: got %+v", got)
	}
	if _, live, err := s.Consumer.RenewReaders(t.Context(), group, "b", time.Hour); err != nil || live != 1 {
		t.Errorf("live members: got %d, %v, want 1", live, err)
	}
}
