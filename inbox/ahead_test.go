package inbox

import (
	"testing"

	"github.com/waybillhq/waybill/broker"
	"github.com/waybillhq/waybill/store/memstore"
)

// What is settled waits for the next step's commit only where that is sure to
// come soon: beside the one transaction that settles what was read ahead.
func TestPositionsWaitForTheNextTransactionAlone(t *testing.T) {
	partition := broker.Partition{Topic: topic}
	item := func() *item { return &item{partition: partition} }
	type fed = *feed[*memstore.Tx]
	for _, c := range []struct {
		name  string
		given func(fed)
		want  bool
	}{
		{"read ahead", func(fed) {}, true},
		{"read ahead, with some left before", func(f fed) { f.pending = append(f.pending, item(), item()) }, true},
		{"one of some left is handled by itself", func(f fed) { f.pending = append(f.pending, item()); f.pending[0].solo = true }, true},
		{"nothing follows", func(f fed) { f.ahead = nil }, false},
		{"handled alone after an unclean stop", func(f fed) { f.readers.claims[partition] = &claim{careful: 1} }, false},
		{"handled alone no more", func(f fed) { f.readers.claims[partition] = &claim{} }, true},
		{"paused", func(f fed) { f.p.pause.failed(f.ahead[0].key) }, false},
		{"several transactions", func(f fed) { f.p.config.Workers = 2 }, false},
		{"the broker shares the partitions", func(f fed) { f.share = nil }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				config := r.config()
				config.Workers, config.PauseAfter = 1, 1
				p, err := New(r.st, r.b.Connect(), apply, config)
				if err != nil {
					t.Fatal(err)
				}
				subscription, err := r.b.Connect().Subscribe(t.Context(), broker.SubscribeRequest{Group: "g", Topics: []string{topic}})
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = subscription.Close() }()
				f := newFeed(p, subscription)
				f.share = &share{readers: f.readers}
				f.ahead = append(f.ahead, item())
				c.given(f)
				if got := f.nextCommits(); got != c.want {
					t.Errorf("got %t, want %t", got, c.want)
				}
			})
		})
	}
}
