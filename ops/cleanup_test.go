package ops

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/memstore"
)

func TestCleanupKeepsWhatIsUnsettledOrYoung(t *testing.T) {
	d := newDesk(t, memstore.Config{})
	d.lead("")
	for i := range 5 {
		d.add(order(fmt.Sprintf("old%d", i), int64(i+1)))
		d.send(fmt.Sprintf("old%d", i))
	}
	d.add(order("pending", 6), order("dead", 7), order("again", 8))
	d.fail("dead", true, 12, 0)
	d.send("again")
	_, err := Requeue(t.Context(), d, because, "again")
	d.must(err)
	d.applied("inventory", "old0")
	d.appliedAt("inventory", "old1", 18)
	d.at = d.at.Add(48 * time.Hour)
	d.lead("")
	d.add(order("young", 9))
	d.send("young")

	c, err := NewCleanup(d, d, &CleanupConfig{Retention: 24 * time.Hour, InboxRetention: 24 * time.Hour, Batch: 2, Pause: time.Millisecond, Groups: []string{"inventory"}})
	d.must(err)
	removed, err := c.Once(t.Context())
	// The newest consumed row of a partition stays.
	if want := (Removed{Events: 5, Consumed: 1}); err != nil || removed != want {
		t.Errorf("removed %+v, error %v, want %+v", removed, err, want)
	}
	left, err := d.Find(t.Context(), store.Filter{})
	d.must(err)
	var ids []string
	for _, e := range left {
		ids = append(ids, e.Event.ID)
	}
	if got, want := fmt.Sprint(ids), "[pending dead again young]"; got != want {
		t.Errorf("left %s, want %s", got, want)
	}
}

func TestCleanupStaysBelowCoverage(t *testing.T) {
	d := newDesk(t, memstore.Config{})
	d.lead("")
	d.add(order("e1", 1), order("e2", 2), order("e3", 3))
	for _, id := range []string{"e1", "e2", "e3"} {
		d.send(id)
	}
	d.at = d.at.Add(48 * time.Hour)
	var below atomic.Int64
	c, err := NewCleanup(d, nil, &CleanupConfig{Retention: time.Hour, Below: func(context.Context) (int64, error) { return below.Load(), nil }})
	d.must(err)
	if removed, err := c.Once(t.Context()); err != nil || removed.Events != 0 {
		t.Errorf("nothing covered: removed %+v, error %v", removed, err)
	}
	below.Store(3)
	if removed, err := c.Once(t.Context()); err != nil || removed.Events != 2 {
		t.Errorf("covered below 3: removed %+v, error %v", removed, err)
	}
}

func TestCleanupRunsUntilStoppedAndSurvivesFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memstore.New(nil)
		var rounds atomic.Int64
		st.SetError(func(op string) error {
			if op == "cleanup" && rounds.Add(1) <= 2 {
				return errors.New("away")
			}
			return nil
		})
		ctx, stop := context.WithTimeout(t.Context(), 65*time.Minute)
		defer stop()
		c, err := NewCleanup(st, nil, &CleanupConfig{Every: 10 * time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Run(ctx); err != nil {
			t.Error(err)
		}
		if got := rounds.Load(); got != 7 {
			t.Errorf("%d rounds in 65 minutes, want 7", got)
		}
	})
}

// paced is a database that takes a while for each row, and longer for the first.
type paced struct {
	store.Cleaner
	each    time.Duration
	left    int
	busy    time.Duration
	largest int
}

func (p *paced) Cleanup(_ context.Context, request store.CleanupRequest) (int, error) {
	n := min(request.Limit, p.left)
	took := time.Millisecond + time.Duration(n)*p.each
	time.Sleep(took)
	p.left -= n
	p.busy += took
	p.largest = max(p.largest, n)
	return n, nil
}

func TestCleanupLeavesTheDatabaseToOthers(t *testing.T) {
	for _, c := range []struct {
		name     string
		each     time.Duration
		at, most int // rows of the largest batch
	}{
		{"fast", time.Microsecond, 1000, 1000},
		{"slow", 100 * time.Microsecond, 50, 200},
		{"crawling", 2 * time.Millisecond, 10, 50},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				st := &paced{each: c.each, left: 20_000}
				cleanup, err := NewCleanup(st, nil, &CleanupConfig{Pause: time.Millisecond})
				if err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				removed, err := cleanup.Once(t.Context())
				if err != nil || removed.Events != 20_000 {
					t.Fatalf("removed %+v, %v", removed, err)
				}
				if st.largest < c.at || st.largest > c.most {
					t.Errorf("the largest batch had %d rows, want %d to %d", st.largest, c.at, c.most)
				}
				if all := time.Since(began); st.busy*9 > all {
					t.Errorf("busy for %v of %v, want at most a tenth", st.busy, all)
				}
			})
		})
	}
}

type pacedTurns struct{ *paced }

func (pacedTurns) OneWriter() {}

// Others wait for the whole of a batch where only one may write.
func TestCleanupOfOneWriterIsShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := pacedTurns{&paced{each: 10 * time.Microsecond, left: 20_000}}
		cleanup, err := NewCleanup(st, nil, &CleanupConfig{Pause: time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		removed, err := cleanup.Once(t.Context())
		if err != nil || removed.Events != 20_000 {
			t.Fatalf("removed %+v, %v", removed, err)
		}
		if st.largest > 100 {
			t.Errorf("the largest batch had %d rows, want at most 100", st.largest)
		}
		if all := time.Since(began); st.busy*19 > all {
			t.Errorf("busy for %v of %v, want at most a twentieth", st.busy, all)
		}
	})
}

func TestCleanupRefusesNegative(t *testing.T) {
	if _, err := NewCleanup(memstore.New(nil), nil, &CleanupConfig{Retention: -1}); err == nil {
		t.Error("accepted")
	}
	if _, err := NewCleanup(memstore.New(nil), nil, &CleanupConfig{Groups: []string{"inventory"}}); err == nil {
		t.Error("groups without the tables of a consumer were accepted")
	}
}
