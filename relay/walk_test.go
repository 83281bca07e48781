package relay_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
	"github.com/waybillhq/waybill/broker/membroker"
	"github.com/waybillhq/waybill/relay"
	"github.com/waybillhq/waybill/relay/relaytest"
	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/memstore"
)

// together answers walks by id, as stores do.
type together struct {
	*memstore.Store
	walk store.QueueWalk
}

func (s *together) Walk(ctx context.Context, request store.WalkRequest) (store.WalkResult, error) {
	return s.walk.Walk(request, func(after int64, limit int, add func(store.Ref, bool)) error {
		var all store.WalkRequest
		for lane := range store.Lanes {
			all.Lanes = append(all.Lanes, store.LaneCursor{Lane: lane, After: after})
		}
		result, err := s.Store.Walk(ctx, all)
		slices.SortFunc(result.Refs, func(a, b store.Ref) int { return cmp.Compare(a.ID, b.ID) })
		for _, ref := range result.Refs[:min(limit, len(result.Refs))] {
			add(ref, true)
		}
		return err
	}, func() (store.WalkResult, error) { return s.Store.Walk(ctx, request) })
}

func TestRelayThatWalksAllLanesTogether(t *testing.T) {
	relaytest.Run(t, relaytest.Harness[*memstore.Tx]{
		Bubble: synctest.Test,
		Open: func(*testing.T) relaytest.Database[*memstore.Tx] {
			s := memstore.New(nil)
			db := database(s)
			db.Store = &together{Store: s}
			return db
		},
	})
}

// counting counts walks and loads.
type counting struct {
	store.Outbox
	walks, loads atomic.Int32
}

func (s *counting) Walk(ctx context.Context, request store.WalkRequest) (store.WalkResult, error) {
	s.walks.Add(1)
	return s.Outbox.Walk(ctx, request)
}

func (s *counting) Load(ctx context.Context, ids []int64, maxBytes int) (store.FetchResult, error) {
	s.loads.Add(1)
	return s.Outbox.Load(ctx, ids, maxBytes)
}

// A long queue is loaded in several parts for each walk, and all of it.
func TestOneWalkIsForSeveralLoads(t *testing.T) {
	for name, outbox := range map[string]func(*memstore.Store) store.Outbox{
		"lane by lane": func(s *memstore.Store) store.Outbox { return s },
		"together":     func(s *memstore.Store) store.Outbox { return &together{Store: s} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const events = 4000
				s := memstore.New(nil)
				tx, err := s.Begin(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				for i := range events {
					key := fmt.Sprint("k", i%500)
					_, err := s.Append(t.Context(), tx, []waybill.Event{{
						ID: fmt.Sprint(i), Type: "Changed", Topic: "orders", Key: key, AggregateType: "order", AggregateID: key, Data: []byte("{}"),
					}})
					if err != nil {
						t.Fatal(err)
					}
				}
				if err := tx.Commit(t.Context()); err != nil {
					t.Fatal(err)
				}
				b := membroker.New()
				if err := b.EnsureTopics(t.Context(), []broker.TopicSpec{{Name: "orders", Partitions: 1}}); err != nil {
					t.Fatal(err)
				}
				ctx, stop := context.WithTimeout(t.Context(), time.Minute)
				defer stop()
				counted, settled := &counting{Outbox: outbox(s)}, 0
				config := &relay.Config{FetchBatch: 100, PublishBatch: 100, Logger: slog.New(slog.DiscardHandler)}
				config.Events.Settled = func(i relay.SettledInfo) {
					if settled += i.Sent; settled == events {
						stop()
					}
				}
				r, err := relay.New(counted, b, config)
				if err != nil {
					t.Fatal(err)
				}
				if err := r.Run(ctx); err != nil {
					t.Fatal(err)
				}
				if counts, err := s.Counts(t.Context()); err != nil || counts.Pending != 0 {
					t.Errorf("left in the queue: %+v, %v", counts, err)
				}
				if walks, loads := counted.walks.Load(), counted.loads.Load(); 2*walks > loads {
					t.Errorf("%d walks for %d loads", walks, loads)
				}
			})
		})
	}
}

// slowly refuses the first record of key A, and takes its time for the others.
type slowly struct{ refused bool }

func (p *slowly) Publish(_ context.Context, records []waybill.Record) []error {
	errs := make([]error, len(records))
	switch {
	case records[0].Key != "A":
	case !p.refused:
		p.refused = true
		errs[0] = broker.Retryable(errors.New("not now"))
		for i := range errs[1:] {
			errs[i+1] = broker.ErrPredecessor
		}
	default:
		time.Sleep(200 * time.Millisecond) // of the bubble
	}
	return errs
}

func (p *slowly) Close() error { return nil }

// However many events one key has, those of the others do not wait for them.
func TestOneKeysEventsDoNotHideOthers(t *testing.T) {
	for _, lanes := range []string{"lane by lane", "together"} {
		for _, open := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, open transaction %v", lanes, open), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := memstore.New(nil)
					var outbox store.Outbox = s
					if lanes == "together" {
						outbox = &together{Store: s}
					}
					put := func(tx *memstore.Tx, key string, n int) {
						t.Helper()
						events := make([]waybill.Event, n)
						for i := range events {
							events[i] = waybill.Event{ID: waybill.NewID(), Type: "Changed", Topic: "orders", Key: key, AggregateType: "order", AggregateID: key, Data: []byte("{}")}
						}
						if _, err := s.Append(t.Context(), tx, events); err != nil {
							t.Fatal(err)
						}
					}
					begin := func() *memstore.Tx {
						t.Helper()
						tx, err := s.Begin(t.Context())
						if err != nil {
							t.Fatal(err)
						}
						return tx
					}
					add := func(key string, n int) {
						t.Helper()
						tx := begin()
						put(tx, key, n)
						if err := tx.Commit(t.Context()); err != nil {
							t.Fatal(err)
						}
					}
					var sentA atomic.Int32
					sentB := make(chan time.Time, 10)
					config := &relay.Config{Logger: slog.New(slog.DiscardHandler), BackoffMin: time.Second, BackoffMax: time.Second}
					config.Events.Published = func(i relay.PublishedInfo) {
						if i.Key == "B" {
							sentB <- time.Now()
							return
						}
						sentA.Add(1)
					}
					r, err := relay.New(outbox, &slowly{}, config)
					if err != nil {
						t.Fatal(err)
					}
					ctx, stop := context.WithCancel(t.Context())
					ended := make(chan error, 1)
					add("A", 30_000)
					began := time.Now()
					add("B", 1)
					go func() { ended <- r.Run(ctx) }()
					if wait := (<-sentB).Sub(began); wait > time.Second {
						t.Errorf("B waited %v for a backlog of A", wait)
					}
					// A is refused, and then read by key, while the frontier stands.
					var other *memstore.Tx
					if open {
						other = begin()
						put(other, "C", 1)
					}
					for sentA.Load() == 0 {
						time.Sleep(10 * time.Millisecond)
					}
					add("A", 6000)
					time.Sleep(50 * time.Millisecond)
					began = time.Now()
					add("B", 1)
					if wait := (<-sentB).Sub(began); wait > time.Second {
						t.Errorf("B waited %v while A was read by key", wait)
					}
					if other != nil {
						_ = other.Rollback(t.Context())
					}
					stop()
					if err := <-ended; err != nil {
						t.Error(err)
					}
				})
			})
		}
	}
}
