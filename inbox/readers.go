package inbox

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
	"github.com/waybillhq/waybill/store"
)

// readers keeps this process's rows in the table of partition readers. For a
// broker that shares partitions itself, a row says no more than that its reader
// has not stopped in good order. For others, where exclusive is set, it is the
// lease by which the partition is read.
type readers struct {
	st        store.Readers
	group     string
	owner     string
	ttl       time.Duration
	window    int // events handled alone after an unclean stop
	exclusive bool

	// calls keeps renewing and claiming apart, so that an answer to one cannot
	// be mistaken for news about the other. It is held over calls to the store.
	calls chan struct{}

	mu     sync.Mutex
	claims map[broker.Partition]*claim
	fences map[broker.Partition]int64 // the last fence this process had
	lost   []broker.Partition         // not yet reported by takeLost
	live   int
}

type claim struct {
	fence    int64
	deadline time.Time // by this process's clock, from before the call was sent
	careful  int       // events still to be handled alone
}

func newReaders(st store.Readers, c *Config, exclusive bool) *readers {
	return &readers{
		st: st, group: c.Group, owner: waybill.NewID(), ttl: c.ReaderTTL, window: c.BatchSize, exclusive: exclusive,
		calls:  make(chan struct{}, 1),
		claims: make(map[broker.Partition]*claim),
		fences: make(map[broker.Partition]int64),
	}
}

func (r *readers) key(p broker.Partition) store.ReaderKey {
	return store.ReaderKey{Group: r.group, Topic: p.Topic, Partition: p.ID}
}

func (r *readers) enter(ctx context.Context) error {
	select {
	case r.calls <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// claim takes a partition, and reports whether it is this process's now.
func (r *readers) claim(ctx context.Context, p broker.Partition) (bool, error) {
	if err := r.enter(ctx); err != nil {
		return false, err
	}
	defer func() { <-r.calls }()
	r.mu.Lock()
	_, have := r.claims[p]
	last, hadBefore := r.fences[p]
	reported := !slices.Contains(r.lost, p)
	r.mu.Unlock()
	if have {
		return true, nil
	}
	if r.exclusive && !reported {
		return false, nil // what was received before the loss must be forgotten first
	}
	sent := now()
	state, ok, err := r.st.ClaimReader(ctx, r.key(p), r.owner, r.ttl, !r.exclusive)
	if err != nil || !ok {
		return false, err
	}
	c := &claim{fence: state.Fence, deadline: sent.Add(r.ttl)}
	// A partition that this very process was the last to have, and lost, tells
	// of no crash.
	if own := hadBefore && state.Fence == last+1; !state.Clean && !own {
		c.careful = r.window
	}
	r.mu.Lock()
	r.claims[p] = c
	r.fences[p] = state.Fence
	r.mu.Unlock()
	return true, nil
}

// renew extends what is held, and notices what is not any more.
func (r *readers) renew(ctx context.Context) error {
	if err := r.enter(ctx); err != nil {
		return err
	}
	defer func() { <-r.calls }()
	sent := now()
	held, live, err := r.st.RenewReaders(ctx, r.group, r.owner, r.ttl)
	if err != nil {
		return err
	}
	still := make(map[broker.Partition]int64, len(held))
	for _, state := range held {
		p := broker.Partition{Topic: state.Topic, ID: state.Partition}
		still[p] = state.Fence
		if r.has(p) {
			continue
		}
		// Given up here, because its deadline passed or because the release did
		// not come through, while the row is still this owner's: without a release
		// it would be renewed for ever and read by no one.
		if err := r.st.ReleaseReader(ctx, r.key(p), r.owner, state.Fence, false); err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.live = max(live, 1)
	for p, c := range r.claims {
		if fence, ok := still[p]; ok && fence == c.fence {
			c.deadline = sent.Add(r.ttl)
		} else {
			r.lose(p)
		}
	}
	return nil
}

// lose notes that a partition is not this process's any more. The caller holds mu.
func (r *readers) lose(p broker.Partition) {
	if _, ok := r.claims[p]; ok {
		delete(r.claims, p)
		r.lost = append(r.lost, p)
	}
}

// stale notes what a failed guard said.
func (r *readers) stale(p broker.Partition) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lose(p)
}

// takeLost returns the partitions lost since the last call, those whose
// deadline has passed included.
func (r *readers) takeLost() []broker.Partition {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.exclusive {
		for p, c := range r.claims {
			if !now().Before(c.deadline) {
				r.lose(p)
			}
		}
	}
	lost := r.lost
	r.lost = nil
	return lost
}

// mayCommit reports whether work on this partition may still be committed.
// Where the broker shares the partitions it always may: the ids in the inbox
// keep a second reader from doing harm.
func (r *readers) mayCommit(p broker.Partition) bool {
	if !r.exclusive {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.claims[p]
	return c != nil && now().Before(c.deadline)
}

func (r *readers) has(p broker.Partition) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.claims[p] != nil
}

func (r *readers) partitions() []broker.Partition {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.SortedFunc(maps.Keys(r.claims), comparePartitions)
}

// isCareful reports whether the partition's next event is to be handled alone.
func (r *readers) isCareful(p broker.Partition) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.claims[p]
	return c != nil && c.careful > 0
}

// mark commits that the event is about to be handled, alone, and returns how
// often that was begun.
func (r *readers) mark(ctx context.Context, p broker.Partition, eventID string) (int, error) {
	r.mu.Lock()
	c := r.claims[p]
	r.mu.Unlock()
	if c == nil {
		return 0, store.ErrStale
	}
	tries, err := r.st.MarkReader(ctx, r.key(p), r.owner, c.fence, eventID)
	if errors.Is(err, store.ErrStale) {
		r.stale(p)
	}
	return tries, err
}

// passed counts one event of the careful window, and reports whether it was the last.
func (r *readers) passed(p broker.Partition) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.claims[p]
	if c == nil || c.careful == 0 {
		return false
	}
	c.careful--
	return c.careful == 0
}

// release gives a partition up.
func (r *readers) release(ctx context.Context, p broker.Partition, clean bool) error {
	if err := r.enter(ctx); err != nil {
		return err
	}
	defer func() { <-r.calls }()
	r.mu.Lock()
	c := r.claims[p]
	delete(r.claims, p)
	r.mu.Unlock()
	if c == nil {
		return nil
	}
	return r.st.ReleaseReader(ctx, r.key(p), r.owner, c.fence, clean)
}

// leave gives up everything, for good.
func (r *readers) leave(ctx context.Context, clean bool) error {
	var errs []error
	for _, p := range r.partitions() {
		errs = append(errs, r.release(ctx, p, clean))
	}
	errs = append(errs, r.st.LeaveReaders(ctx, r.group, r.owner))
	return errors.Join(errs...)
}

// keep renews until ctx ends.
func (r *readers) keep(ctx context.Context, report func(error)) {
	for failures := 0; ; {
		wait := r.ttl * 3 / 10
		if failures > 0 {
			wait = backoff(failures, r.ttl/50, wait)
		}
		if !pauseFor(ctx, wait) {
			return
		}
		err := r.renew(ctx)
		if ctx.Err() != nil {
			return
		}
		report(err)
		if failures++; err == nil {
			failures = 0
		}
	}
}

func comparePartitions(a, b broker.Partition) int {
	return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.ID, b.ID))
}
