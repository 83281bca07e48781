package relay

import (
	"context"
	"testing"
	"time"

	"github.com/waybillhq/waybill/store"
)

// answering answers loads with nothing, and keeps what was asked.
type answering struct {
	Store
	asked []int64
}

func (a *answering) Load(_ context.Context, ids []int64, _ int) (store.FetchResult, error) {
	a.asked = ids
	return store.FetchResult{}, nil
}

// What is missing may be found at any time, and then is known beside what was told
// later.
func TestMissingIDsHaveTheirRoom(t *testing.T) {
	const most = 50
	cases := []struct {
		name                       string
		known, missing, told, want int
	}{
		{"some room", 45, 3, 10, 5},
		{"room for what is missing alone", 49, 1, 10, 1},
		{"no room for all that is missing", 48, 3, 10, 0},
		{"more missing than there is ever room for", 0, 60, 10, 60},
		{"nothing missing", 45, 0, 10, 5},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			a := &answering{}
			s := &scheduler{
				store: a, config: &Config{MaxRows: most, FetchBatch: 20, MaxBytes: 1 << 20},
				known: make(map[int64]*row), jobs: newJobs(1), readDone: make(chan readResult, 1),
			}
			defer s.jobs.end()
			s.feed.phase, s.reads.horizonAt = following, now().Add(time.Hour)
			next := int64(0)
			ids := func(n int) (all []int64) {
				for range n {
					next++
					all = append(all, next)
				}
				return all
			}
			for _, id := range ids(c.known) {
				s.known[id] = &row{}
			}
			for _, id := range ids(c.missing) {
				s.feed.missing = append(s.feed.missing, missingID{id: id})
			}
			s.feed.told.push(ids(c.told)...)
			if s.wantsTold(now()) {
				s.loadTold(t.Context(), readResult{})
				<-s.readDone
			}
			if len(a.asked) != c.want {
				t.Errorf("%d ids were asked for, want %d", len(a.asked), c.want)
			}
		})
	}
}
