package storetest

import (
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/waybillhq/waybill/store"
)

func leaseCases[TX any]() []testCase[TX] {
	return []testCase[TX]{
		{"all lanes are there and free", leaseFree[TX]},
		{"a claim takes at most its limit", leaseLimit[TX]},
		{"concurrent claims never share a lane", leaseConcurrent[TX]},
		{"the fence grows at each change of hands", leaseFence[TX]},
		{"an expired lane changes hands", leaseExpiry[TX]},
		{"an expired lease cannot be renewed", leaseNoRevival[TX]},
		{"a renewal extends what is still held", leaseRenew[TX]},
		{"only the owner can release", leaseRelease[TX]},
		{"leaving frees all and is forgotten", leaseLeave[TX]},
		{"relays are counted while they live", leaseLive[TX]},
		{"relays are listed as they described themselves", leaseRelays[TX]},
	}
}

func (s *suite[TX]) lanes(t testing.TB) []store.LeaseState {
	t.Helper()
	states, err := s.Outbox.ListLeases(t.Context())
	if err != nil {
		t.Fatalf("list leases: %v", err)
	}
	if len(states) != store.Lanes {
		t.Fatalf("list leases: got %d lanes, want %d", len(states), store.Lanes)
	}
	return states
}

func (s *suite[TX]) lane(t testing.TB, lane int) store.LeaseState {
	t.Helper()
	return s.lanes(t)[lane]
}

func (s *suite[TX]) claim(t testing.TB, owner string, ttl time.Duration, limit int) []store.Lease {
	t.Helper()
	leases, err := s.Outbox.Claim(t.Context(), owner, ttl, limit)
	if err != nil {
		t.Fatalf("claim: %v", err)
	}
	return leases
}

func (s *suite[TX]) renew(t testing.TB, owner string, ttl time.Duration, held ...store.Lease) ([]store.Lease, int) {
	t.Helper()
	still, live, err := s.Outbox.Renew(t.Context(), store.Heartbeat{Owner: owner, Host: "host:1", Mode: "poll", TTL: ttl, Held: held})
	if err != nil {
		t.Fatalf("renew: %v", err)
	}
	return still, live
}

func leaseFree[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	for i, state := range s.lanes(t) {
		if state.Lane != i || state.Owner != "" || state.ExpiresIn > 0 {
			t.Errorf("lane %d: got %+v, want it free", i, state)
		}
	}
}

func leaseLimit[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	seen := make(map[int]bool)
	for _, c := range []struct{ limit, want int }{{0, 0}, {5, 5}, {50, 50}, {50, 9}, {1, 0}} {
		leases := s.claim(t, owner, time.Hour, c.limit)
		if len(leases) != c.want {
			t.Errorf("claim of %d: got %d lanes, want %d", c.limit, len(leases), c.want)
		}
		for _, lease := range leases {
			if seen[lease.Lane] {
				t.Errorf("lane %d was claimed twice", lease.Lane)
			}
			seen[lease.Lane] = true
			state := s.lane(t, lease.Lane)
			if state.Owner != owner || state.Fence != lease.Fence || state.ExpiresIn <= 0 || state.ExpiresIn > time.Hour {
				t.Errorf("lane %d after the claim: got %+v", lease.Lane, state)
			}
		}
	}
}

func leaseConcurrent[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	const relays = 6
	type claim struct {
		leases []store.Lease
		err    error
	}
	claims := make([]claim, relays)
	var wg sync.WaitGroup
	for i := range relays {
		wg.Go(func() {
			for {
				leases, err := s.Outbox.Claim(t.Context(), fmt.Sprintf("relay-%d", i), time.Hour, 4)
				claims[i].leases = append(claims[i].leases, leases...)
				claims[i].err = err
				if err != nil || len(leases) == 0 {
					return
				}
			}
		})
	}
	wg.Wait()
	states := s.lanes(t)
	owners := make(map[int]string)
	for i, c := range claims {
		if c.err != nil {
			t.Fatalf("claim: %v", c.err)
		}
		for _, lease := range c.leases {
			name := fmt.Sprintf("relay-%d", i)
			if other, taken := owners[lease.Lane]; taken {
				t.Errorf("lane %d was given to %s and %s", lease.Lane, other, name)
			}
			owners[lease.Lane] = name
			if state := states[lease.Lane]; state.Owner != name || state.Fence != lease.Fence {
				t.Errorf("lane %d: the table says %+v, %s was told fence %d", lease.Lane, state, name, lease.Fence)
			}
		}
	}
	// One that was locked by another for a moment may have been passed over.
	if rest := s.claim(t, "last", time.Hour, store.Lanes); len(owners)+len(rest) != store.Lanes {
		t.Errorf("claimed %d lanes, and then %d, want %d together", len(owners), len(rest), store.Lanes)
	}
}

func leaseFence[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	fences := make(map[int]int64)
	for _, name := range []string{"relay-1", "relay-2", "relay-1"} {
		guard := s.ownFor(t, name, time.Hour)
		for _, lease := range guard.Lanes {
			if lease.Fence <= fences[lease.Lane] {
				t.Fatalf("fence of lane %d: got %d after %d", lease.Lane, lease.Fence, fences[lease.Lane])
			}
			fences[lease.Lane] = lease.Fence
		}
		if err := s.Outbox.Release(t.Context(), name, guard.Lanes); err != nil {
			t.Fatal(err)
		}
	}
}

func leaseExpiry[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	before := s.ownFor(t, "relay-1", short)
	var after []store.Lease
	eventually(t, "the lanes expire", func() bool {
		after = append(after, s.claim(t, "relay-2", time.Hour, store.Lanes)...)
		return len(after) == store.Lanes
	})
	fences := make(map[int]int64)
	for _, lease := range before.Lanes {
		fences[lease.Lane] = lease.Fence
	}
	for _, lease := range after {
		if lease.Fence <= fences[lease.Lane] {
			t.Errorf("fence of lane %d did not grow", lease.Lane)
		}
	}
	if held, _ := s.renew(t, "relay-1", time.Hour, before.Lanes...); len(held) != 0 {
		t.Errorf("the former owner still holds %v", held)
	}
	if err := s.Outbox.Release(t.Context(), "relay-1", before.Lanes); err != nil {
		t.Errorf("release of what was lost: %v", err)
	}
	if state := s.lane(t, 0); state.Owner != "relay-2" || state.ExpiresIn <= time.Minute {
		t.Errorf("the new owner's lane was touched: %+v", state)
	}
}

func leaseNoRevival[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	leases := s.claim(t, owner, short, 1)
	eventually(t, "the lease expires", func() bool { return s.lane(t, leases[0].Lane).ExpiresIn <= 0 })
	if held, _ := s.renew(t, owner, time.Hour, leases...); len(held) != 0 {
		t.Errorf("an expired lease was renewed: %v", held)
	}
	if state := s.lane(t, leases[0].Lane); state.ExpiresIn > 0 {
		t.Errorf("the lane lives again: %+v", state)
	}
}

func leaseRenew[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	mine := s.claim(t, owner, time.Minute, 4)
	other := s.claim(t, "relay-2", time.Minute, 1)
	wrongFence := mine[3]
	wrongFence.Fence++
	held, _ := s.renew(t, owner, time.Hour, mine[0], mine[1], wrongFence, other[0])
	if len(held) != 2 {
		t.Fatalf("held: got %v, want the first two of %v", held, mine)
	}
	for _, lease := range held {
		if lease != mine[0] && lease != mine[1] {
			t.Errorf("held: got %v", lease)
		}
		if got := s.lane(t, lease.Lane).ExpiresIn; got <= time.Minute {
			t.Errorf("lane %d expires in %v, want about 1h", lease.Lane, got)
		}
	}
	for _, lease := range []store.Lease{mine[2], mine[3], other[0]} {
		if got := s.lane(t, lease.Lane).ExpiresIn; got > time.Minute {
			t.Errorf("lane %d was extended to %v", lease.Lane, got)
		}
	}
	if held, live := s.renew(t, "relay-3", time.Minute); len(held) != 0 || live != 2 {
		t.Errorf("a relay without lanes: got %v, live %d, want none, 2", held, live)
	}
}

func leaseRelease[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	leases := s.claim(t, owner, time.Hour, 3)
	wrongFence := leases[1]
	wrongFence.Fence--
	for _, c := range []struct {
		owner string
		lease store.Lease
	}{{"relay-2", leases[0]}, {owner, wrongFence}} {
		if err := s.Outbox.Release(t.Context(), c.owner, []store.Lease{c.lease}); err != nil {
			t.Errorf("release of what is not held: %v", err)
		}
		if state := s.lane(t, c.lease.Lane); state.Owner != owner {
			t.Errorf("lane %d was released by another: %+v", c.lease.Lane, state)
		}
	}
	if err := s.Outbox.Release(t.Context(), owner, leases[:2]); err != nil {
		t.Fatal(err)
	}
	for i, lease := range leases {
		if free := s.lane(t, lease.Lane).Owner == ""; free != (i < 2) {
			t.Errorf("lane %d: free %t", lease.Lane, free)
		}
	}
	if err := s.Outbox.Release(t.Context(), owner, nil); err != nil {
		t.Errorf("release of nothing: %v", err)
	}
	if got := s.claim(t, "relay-2", time.Hour, store.Lanes); len(got) != store.Lanes-1 {
		t.Errorf("claimable after the release: got %d, want %d", len(got), store.Lanes-1)
	}
}

func leaseLeave[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	s.renew(t, owner, time.Hour)
	s.renew(t, "relay-2", time.Hour)
	s.claim(t, owner, time.Hour, 10)
	others := s.claim(t, "relay-2", time.Hour, 10)
	if err := s.Outbox.Leave(t.Context(), owner); err != nil {
		t.Fatal(err)
	}
	owned := 0
	for _, state := range s.lanes(t) {
		if state.Owner != "" {
			owned++
		}
	}
	if owned != len(others) {
		t.Errorf("lanes with an owner: got %d, want %d", owned, len(others))
	}
	relays, err := s.Outbox.ListRelays(t.Context())
	if err != nil || len(relays) != 1 || relays[0].Owner != "relay-2" {
		t.Errorf("relays: got %+v, %v", relays, err)
	}
	if _, live := s.renew(t, "relay-2", time.Hour); live != 1 {
		t.Errorf("live relays: got %d, want 1", live)
	}
}

func leaseLive[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	for i, name := range []string{"relay-1", "relay-2"} {
		if _, live := s.renew(t, name, time.Hour); live != i+1 {
			t.Errorf("live relays: got %d, want %d", live, i+1)
		}
	}
	s.renew(t, "relay-1", short)
	eventually(t, "the first relay expires", func() bool {
		_, live := s.renew(t, "relay-2", time.Hour)
		return live == 1
	})
	if _, live := s.renew(t, "relay-1", time.Hour); live != 2 {
		t.Errorf("live relays after it came back: got %d, want 2", live)
	}
}

func leaseRelays[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	beats := []store.Heartbeat{
		{Owner: "z", Host: "host-a:17", Mode: "poll", TTL: time.Hour, Report: []byte(`{"state":"green","n":1}`)},
		{Owner: "a", Host: "host-b:18", Mode: "cdc", TTL: time.Hour},
	}
	started := make(map[string]time.Time)
	for i, beat := range beats {
		if i > 0 {
			eventually(t, "the clock moves on", func() bool {
				relays, err := s.Outbox.ListRelays(t.Context())
				return err == nil && relays[0].ExpiresIn < time.Hour-10*time.Millisecond
			})
		}
		if _, _, err := s.Outbox.Renew(t.Context(), beat); err != nil {
			t.Fatal(err)
		}
		relays, err := s.Outbox.ListRelays(t.Context())
		if err != nil || len(relays) != i+1 {
			t.Fatalf("relays: got %+v, %v", relays, err)
		}
		started[beat.Owner] = relays[i].StartedAt
	}
	beats[0].Report = []byte(`{"state":"red","n":2}`)
	if _, _, err := s.Outbox.Renew(t.Context(), beats[0]); err != nil {
		t.Fatal(err)
	}
	relays, err := s.Outbox.ListRelays(t.Context())
	if err != nil || len(relays) != 2 {
		t.Fatalf("relays: got %+v, %v", relays, err)
	}
	for i, beat := range beats {
		got := relays[i]
		if got.Owner != beat.Owner || got.Host != beat.Host || got.Mode != beat.Mode {
			t.Errorf("relay %d: got %+v, want %+v", i, got, beat)
		}
		if got.ExpiresIn <= time.Minute || got.ExpiresIn > time.Hour {
			t.Errorf("relay %d expires in %v", i, got.ExpiresIn)
		}
		if got.StartedAt.IsZero() || !got.StartedAt.Equal(started[beat.Owner]) {
			t.Errorf("relay %d started at %v, at first %v", i, got.StartedAt, started[beat.Owner])
		}
	}
	var report struct {
		State string
		N     int
	}
	if err := json.Unmarshal(relays[0].Report, &report); err != nil || report.State != "red" || report.N != 2 {
		t.Errorf("report: got %s, %v", relays[0].Report, err)
	}
}
