package relay_test

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math"
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

// together answers walks by id, as a store may.
type together struct{ *memstore.Store }

func (s together) Walk(ctx context.Context, request store.WalkRequest) (store.WalkResult, error) {
	limit := request.Limit
	request.Limit = 0
	for i := range request.Lanes {
		request.Lanes[i].Limit = 0
	}
	result, err := s.Store.Walk(ctx, request)
	slices.SortFunc(result.Refs, func(a, b store.Ref) int { return cmp.Compare(a.ID, b.ID) })
	result.Through = math.MaxInt64
	if limit > 0 && len(result.Refs) > limit {
		result.Refs = result.Refs[:limit]
		result.Through = result.Refs[limit-1].ID
	}
	return result, err
}

func TestRelayThatWalksAllLanesTogether(t *testing.T) {
	relaytest.Run(t, relaytest.Harness[*memstore.Tx]{
		Bubble: synctest.Test,
		Open: func(*testing.T) relaytest.Database[*memstore.Tx] {
			s := memstore.New(nil)
			db := database(s)
			db.Store = together{s}
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
		"together":     func(s *memstore.Store) store.Outbox { return together{s} },
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
