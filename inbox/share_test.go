package inbox

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/memstore"
)

const wide = "wide" // a topic of seven partitions

func (r *rig) widen() *Config {
	r.t.Helper()
	if err := r.b.EnsureTopics(r.t.Context(), []broker.TopicSpec{{Name: wide, Partitions: 7}}); err != nil {
		r.t.Fatal(err)
	}
	config := r.config()
	config.Topics = []string{wide}
	return config
}

func wideEvents(version int64) []waybill.Event {
	var events []waybill.Event
	for i := range 30 {
		e := ev(fmt.Sprintf("k%02d", i), version)
		e.Topic = wide
		events = append(events, e)
	}
	return events
}

func wideHistory(versions string) map[string]string {
	want := map[string]string{}
	for i := range 30 {
		want[fmt.Sprintf("k%02d", i)] = versions
	}
	return want
}

// owners counts the partitions by their live reader.
func (r *rig) owners() map[string]int {
	states, err := r.st.ListReaders(context.Background(), "g")
	if err != nil {
		r.t.Fatal(err)
	}
	owners := map[string]int{}
	for _, s := range states {
		if s.Owner != "" && s.ExpiresIn > 0 {
			owners[s.Owner]++
		}
	}
	return owners
}

func (r *rig) shared(parts ...int) func() bool {
	return func() bool {
		var got []int
		for _, n := range r.owners() {
			got = append(got, n)
		}
		if len(got) != len(parts) {
			return false
		}
		counts := map[int]int{}
		for i := range got {
			counts[got[i]]++
			counts[parts[i]]--
		}
		for _, n := range counts {
			if n != 0 {
				return false
			}
		}
		return true
	}
}

func TestMembersShareThePartitionsOfABrokerThatDoesNot(t *testing.T) {
	for name, batch := range map[string]int{"all at once": 0, "while more is read ahead": 2} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) { shareInTurns(t, r, batch) })
		})
	}
}

func shareInTurns(t *testing.T, r *rig, batch int) {
	config := r.widen()
	if batch > 0 {
		config.BatchSize, config.Workers = batch, 1
	}
	slowly := func(ctx context.Context, tx *memstore.Tx, event waybill.Event) error {
		if batch > 0 {
			pauseFor(ctx, 100*time.Millisecond) // so that partitions move while there is a backlog
		}
		return apply(ctx, tx, event)
	}
	r.publish(wideEvents(1)...)
	a := r.startOn(r.st, r.b.Unshared(), slowly, config)
	r.until("one has all", r.shared(7))
	r.publish(wideEvents(2)...)
	b := r.startOn(r.st, r.b.Unshared(), slowly, config)
	r.until("two share", r.shared(4, 3))
	r.publish(wideEvents(3)...)
	c := r.startOn(r.st, r.b.Unshared(), slowly, config)
	r.until("three share", r.shared(3, 2, 2))
	r.until("lag 0", func() bool { return r.b.Lag("g", wide) == 0 })
	a.mustStop()
	r.publish(wideEvents(4)...)
	r.until("two share again", r.shared(4, 3))
	r.until("lag 0", func() bool { return r.b.Lag("g", wide) == 0 })
	b.mustStop()
	c.mustStop()
	r.wantHistory(wideHistory("1 2 3 4"))
	if n := r.said("duplicate"); n != 0 {
		t.Errorf("%d duplicates, although all hand-overs were in order", n)
	}
	if len(r.owners()) != 0 {
		t.Errorf("owners after the end: %v", r.owners())
	}
}

// counting counts what is read.
type counting struct {
	broker.Subscriber
	records *atomic.Int64
}

type countingSubscription struct {
	broker.Subscription
	broker.Assigner
	records *atomic.Int64
}

func (c counting) Subscribe(ctx context.Context, request broker.SubscribeRequest) (broker.Subscription, error) {
	s, err := c.Subscriber.Subscribe(ctx, request)
	if err != nil {
		return nil, err
	}
	return countingSubscription{s, s.(broker.Assigner), c.records}, nil
}

func (c countingSubscription) Poll(ctx context.Context, limit int, wait time.Duration) ([]broker.Delivery, error) {
	deliveries, err := c.Subscription.Poll(ctx, limit, wait)
	c.records.Add(int64(len(deliveries)))
	return deliveries, err
}

// mute is a way to the database on which renewals are lost.
type mute struct {
	*memstore.Store
	now atomic.Bool
}

func (m *mute) RenewReaders(ctx context.Context, group, owner string, ttl time.Duration) ([]store.ReaderState, int, error) {
	if m.now.Load() {
		return nil, 0, errBoom
	}
	return m.Store.RenewReaders(ctx, group, owner, ttl)
}

// What was read ahead of partitions that are lost is not handled: another member
// has read it from the committed position.
func TestWhatWasReadAheadIsLostWithItsPartition(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		config := r.widen()
		config.BatchSize, config.Workers, config.HandlerTimeout = 5, 1, time.Hour
		var records atomic.Int64
		began, goOn := make(chan struct{}, 1), make(chan struct{})
		st, first := &mute{Store: r.st}, true
		r.startOn(st, counting{r.b.Unshared(), &records}, func(ctx context.Context, tx *memstore.Tx, event waybill.Event) error {
			if first {
				first = false
				began <- struct{}{}
				<-goOn
			}
			return apply(ctx, tx, event)
		}, config)
		r.until("one has all", r.shared(7))
		r.publish(wideEvents(1)...)
		<-began
		r.until("more is read while a handler is busy", func() bool { return records.Load() > 5 })
		st.now.Store(true)
		r.until("its leases run out", func() bool { return len(r.owners()) == 0 })
		r.startOn(r.st, r.b.Unshared(), apply, config)
		r.until("another has all", r.shared(7))
		close(goOn)
		r.until("lag 0", func() bool { return r.b.Lag("g", wide) == 0 })
		st.now.Store(false)
		r.until("shared", r.shared(4, 3))
		r.publish(wideEvents(2)...)
		r.until("lag 0", func() bool { return r.b.Lag("g", wide) == 0 })
		r.wantHistory(wideHistory("1 2"))
		if n := r.said("duplicate"); n != 0 {
			t.Errorf("%d duplicates: what was read ahead was handled after it was lost", n)
		}
	})
}

func TestPartitionsOfACrashedMemberAreTakenOver(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		config := r.widen()
		r.startOn(r.st, r.b.Unshared(), apply, config)
		dead := &mortal{Store: r.st}
		doomed := r.startOn(dead, r.b.Unshared(), apply, config)
		r.until("shared", r.shared(4, 3))
		dead.gone = true
		r.publish(wideEvents(1)...)
		r.after(2 * time.Second)
		if lag := r.b.Lag("g", wide); lag == 0 {
			t.Error("nothing is left of the dead member's partitions, so the test shows nothing")
		}
		r.until("taken over", func() bool { return r.b.Lag("g", wide) == 0 })
		r.wantHistory(wideHistory("1"))
		_ = doomed.stop()
	})
}

// mortal is one process's way to the database.
type mortal struct {
	*memstore.Store
	gone bool
}

func (m *mortal) alive() error {
	if m.gone {
		return errors.New("the process is gone")
	}
	return nil
}

// A member whose lease ran out while its handler was busy must not commit, and
// must read again from the committed position when it gets the partition back.
func TestLostLeaseCommitsNothing(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		config := r.widen()
		events := wideEvents(1)
		var batches atomic.Int32
		config.Events.Batch = func(BatchInfo) { batches.Add(1) }
		began, goOn := make(chan struct{}, 1), make(chan struct{})
		runs := 0
		slow := r.startOn(r.st, r.b.Unshared(), func(ctx context.Context, tx *memstore.Tx, event waybill.Event) error {
			if event.ID == events[0].ID {
				if runs++; runs == 1 {
					began <- struct{}{}
					<-goOn
				}
			}
			return apply(ctx, tx, event)
		}, config)
		r.until("one has all", r.shared(7))
		r.publish(events[0])
		<-began
		// Its renewals do not come through for longer than the lease lasts.
		r.st.SetError(func(op string) error {
			if op == "renew readers" {
				return errors.New("lost")
			}
			return nil
		})
		r.after(11 * time.Second)
		r.st.SetError(nil)
		commits := r.said("APPLIED")
		close(goOn)
		r.until("applied", func() bool { return r.b.Lag("g", wide) == 0 })
		r.publish(events[1:]...)
		r.until("the rest", func() bool { return r.b.Lag("g", wide) == 0 })
		r.wantHistory(wideHistory("1"))
		if commits != 0 || runs != 2 {
			t.Errorf("%d commits under a lost lease; the handler ran %d times, want 2", commits, runs)
		}
		// A lease that this process lost itself tells of no crash.
		if n := batches.Load(); n > 10 {
			t.Errorf("%d transactions for 30 events", n)
		}
		slow.mustStop()
	})
}

func TestBrokerRebalanceLosesAndDoublesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		config := r.widen()
		slowly := func(ctx context.Context, tx *memstore.Tx, event waybill.Event) error {
			pauseFor(ctx, 20*time.Millisecond)
			return apply(ctx, tx, event)
		}
		var want string
		var members []*running
		for version := int64(1); version <= 12; version++ {
			want = fmt.Sprintf("%s %d", want, version)
			r.publish(wideEvents(version)...)
			switch {
			case version <= 3:
				members = append(members, r.start(slowly, config))
			case version == 5, version == 8:
				members[0].mustStop()
				members = members[1:]
			case version == 6, version == 9:
				r.b.ExpireSessions("g")
			}
			r.after(300 * time.Millisecond)
		}
		r.until("lag 0", func() bool { return r.b.Lag("g", wide) == 0 })
		r.wantHistory(wideHistory(want[1:]))
		r.wantHeld()
	})
}

// Two processes claim a partition's row from each other: what one of them
// received must not be forgotten.
func TestRowTakenByAnotherReaderForgetsNothing(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		began, goOn := make(chan struct{}, 1), make(chan struct{})
		first := true
		r.publish(ev("k", 1), ev("k", 2), ev("k", 3))
		r.start(func(ctx context.Context, tx *memstore.Tx, event waybill.Event) error {
			if first {
				first = false
				began <- struct{}{}
				<-goOn
			}
			return apply(ctx, tx, event)
		}, nil)
		<-began
		states, _ := r.st.ListReaders(t.Context(), "g")
		for _, s := range states {
			if _, _, err := r.st.ClaimReader(t.Context(), s.ReaderKey, "another", time.Minute, true); err != nil {
				t.Fatal(err)
			}
		}
		r.after(10 * time.Second) // the renewal finds out
		close(goOn)
		r.until("applied", func() bool { return r.b.Lag("g", topic) == 0 })
		r.wantHistory(map[string]string{"k": "1 2 3"})
	})
}

func (m *mortal) BeginInbox(ctx context.Context) (tx store.InboxTx[*memstore.Tx], err error) {
	if err := m.alive(); err != nil {
		return nil, err
	}
	return m.Store.BeginInbox(ctx)
}

func (m *mortal) RenewReaders(ctx context.Context, group, owner string, ttl time.Duration) ([]store.ReaderState, int, error) {
	if err := m.alive(); err != nil {
		return nil, 0, err
	}
	return m.Store.RenewReaders(ctx, group, owner, ttl)
}

func (m *mortal) ClaimReader(ctx context.Context, key store.ReaderKey, owner string, ttl time.Duration, force bool) (store.ReaderState, bool, error) {
	if err := m.alive(); err != nil {
		return store.ReaderState{}, false, err
	}
	return m.Store.ClaimReader(ctx, key, owner, ttl, force)
}

// deaf is a process that does not hear the answers to its renewals.
type deaf struct {
	*memstore.Store
	now atomic.Bool
}

func (d *deaf) RenewReaders(ctx context.Context, group, owner string, ttl time.Duration) ([]store.ReaderState, int, error) {
	held, live, err := d.Store.RenewReaders(ctx, group, owner, ttl)
	if d.now.Load() {
		return nil, 0, errBoom
	}
	return held, live, err
}

// A member loses its partitions by its own clock, while the table goes on
// showing them as its; it takes fewer again, because another has joined. The
// rest must come free.
func TestPartitionsLostByTheLocalDeadlineComeFree(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		config := r.widen()
		config.HandlerTimeout = time.Hour
		st := &deaf{Store: r.st}
		began, goOn := make(chan struct{}, 1), make(chan struct{})
		first := true
		r.startOn(st, r.b.Unshared(), func(ctx context.Context, tx *memstore.Tx, event waybill.Event) error {
			if first {
				first = false
				began <- struct{}{}
				<-goOn
			}
			return apply(ctx, tx, event)
		}, config)
		r.until("one has all", r.shared(7))
		r.publish(wideEvents(1)[0])
		<-began
		r.startOn(r.st, r.b.Unshared(), apply, config)
		r.after(5 * time.Second) // the first hears of the second, but is busy
		st.now.Store(true)
		r.after(11 * time.Second)
		st.now.Store(false)
		close(goOn)
		r.until("shared", r.shared(4, 3))
		r.publish(wideEvents(1)[1:]...)
		r.until("lag 0", func() bool { return r.b.Lag("g", wide) == 0 })
		r.wantHistory(wideHistory("1"))
	})
}
