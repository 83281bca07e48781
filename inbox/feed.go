package inbox

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/waybillhq/waybill/broker"
	"github.com/waybillhq/waybill/internal/fault"
	"github.com/waybillhq/waybill/store"
)

// feed reads the stream and sees to it that each record is settled before more
// are read. It runs in one goroutine, as the subscription wants it.
type feed[TX any] struct {
	p            *Processor[TX]
	subscription broker.Subscription
	share        *share // nil when the broker shares the partitions itself
	readers      *readers
	positions    *positions

	pending []*item // received and not settled, in order of arrival
	ahead   []*item // read while others were settled, and not begun with
	reach   int     // of the last poll: how many records it might bring
	// failures counts what went wrong since something was last settled.
	failures int
	// pollFailures counts the same for the broker.
	pollFailures int
}

// maxDeaths is how many transactions may die under one event before that is
// taken for the event's own failure.
const maxDeaths = 3

func newFeed[TX any](p *Processor[TX], subscription broker.Subscription) *feed[TX] {
	f := &feed[TX]{p: p, subscription: subscription, positions: newPositions()}
	assigner, exclusive := subscription.(broker.Assigner)
	f.readers = newReaders(p.st, &p.config, exclusive)
	if exclusive {
		f.share = &share{assigner: assigner, readers: f.readers}
	}
	return f
}

// run reads until ctx ends, and settles what it has begun with by then.
func (f *feed[TX]) run(ctx, work context.Context) {
	for ctx.Err() == nil {
		if err := f.readers.renew(work); err == nil {
			break
		} else if ctx.Err() == nil {
			f.trouble(ctx, troubleDatabase, err)
		}
	}
	for ctx.Err() == nil {
		f.tend(ctx, work)
		if len(f.pending) == 0 && !f.poll(ctx, f.further(), f.p.config.PollWait) {
			f.commit(work)
			continue
		}
		f.advance(ctx, work)
		if len(f.ahead) == 0 || !f.nextCommits() {
			f.commit(work)
		}
	}
	f.commit(work)
}

// nextCommits reports whether what comes next is one transaction, beside which
// positions are committed. An event that is handled alone, or that a pause keeps
// waiting, may take long, and what is settled would look as if it were not.
func (f *feed[TX]) nextCommits() bool {
	first, n := f.ahead, f.p.config.window() // with what is read after those
	if len(f.pending) > 0 {
		first = f.next()
		n = len(first)
	}
	if f.share == nil || len(first) == 0 || f.readers.isCareful(first[0].partition) {
		return false
	}
	paused, _, _ := f.p.pause.state(fromStream)
	return !paused && f.parts(n) == 1
}

// tend follows the partitions: forgets the lost ones and, where that is this
// side's affair, takes its part of them.
func (f *feed[TX]) tend(ctx, work context.Context) {
	if lost := f.readers.takeLost(); len(lost) > 0 {
		f.commit(work) // what is settled is settled, whoever reads on
		if f.share != nil {
			for _, partition := range lost {
				f.forget(partition)
			}
			f.share.stale = true
			f.p.config.Logger.Warn("lost partitions", "partitions", lost)
		}
		// A broker that shares partitions decides by itself who reads: what it has
		// delivered here must be settled here, and only the row is claimed again.
		tell(f.p.config.Events.Readers, ReadersInfo{Partitions: f.readers.partitions(), Lost: lost})
	}
	if f.share == nil {
		return
	}
	before := f.readers.partitions()
	err := f.share.balance(ctx, func() bool {
		f.commit(work) // whoever reads on does so from here
		return len(f.pending) == 0
	})
	if after := f.readers.partitions(); !slices.Equal(before, after) {
		for _, partition := range before {
			if !slices.Contains(after, partition) {
				f.forget(partition)
			}
		}
		tell(f.p.config.Events.Readers, ReadersInfo{Partitions: after})
	}
	if ctx.Err() == nil {
		f.p.report(troubleShare, err)
	}
}

// forget drops what was received of a partition that is another's now.
func (f *feed[TX]) forget(partition broker.Partition) {
	for _, it := range f.pending {
		if it.partition == partition {
			f.p.keepAnswer(context.Background(), it.run)
		}
	}
	isGone := func(it *item) bool { return it.partition == partition }
	f.pending = slices.DeleteFunc(f.pending, isGone)
	f.ahead = slices.DeleteFunc(f.ahead, isGone) // before it can be read again, from its committed position
	f.positions.forget(partition)
}

// firstReach is how many are read at first, and while events are handled alone.
const firstReach = 16

// further is how many records the next poll may bring. A broker that shares the
// partitions moves none between two polls, and waits for a reader only so long;
// one that took a whole window of events, each handled alone, would be taken for
// dead. Its partitions would be another's, who would not know why, begin to handle
// events alone as well, and be late in turn.
func (f *feed[TX]) further() int {
	f.reach = min(max(2*f.reach, firstReach), f.p.config.window())
	return f.reach
}

// poll reads records, after what was read ahead, and reports whether there are
// any.
func (f *feed[TX]) poll(ctx context.Context, limit int, wait time.Duration) bool {
	before := len(f.pending)
	f.pending, f.ahead = append(f.pending, f.ahead...), nil
	if got := len(f.pending) - before; got > 0 {
		limit, wait = limit-got, 0
	}
	if limit > 0 {
		deliveries, err := f.subscription.Poll(ctx, limit, wait)
		switch {
		case ctx.Err() != nil:
			f.pending = f.pending[:before]
			return false // what came with it will come again
		case err != nil:
			f.pollFailures++
			f.p.condition.complain(troubleBroker, err)
			if len(f.pending) == before {
				pauseFor(ctx, backoff(f.pollFailures, retryFirst, retryLast))
				return false
			}
		default:
			f.pollFailures = 0
			f.p.condition.fine(troubleBroker)
		}
		f.pending = append(f.pending, f.decode(deliveries)...)
	}
	for _, it := range f.pending[before:] {
		f.positions.receive(it.partition, it.delivery.Position)
	}
	f.p.sift(ctx, f.pending[before:])
	f.noteOldest()
	if len(f.pending) > 0 {
		fault.Point("inbox.received")
	}
	return len(f.pending) > 0
}

func (f *feed[TX]) decode(deliveries []broker.Delivery) []*item {
	items := make([]*item, 0, len(deliveries))
	for _, delivery := range deliveries {
		it := newItem(delivery)
		if f.share != nil && !f.readers.has(it.partition) {
			continue // lost meanwhile; whoever has it reads it from the committed position
		}
		items = append(items, it)
	}
	return items
}

// readAhead reads and decodes what comes next while the one transaction settles
// what is pending: that is much of the work beside the database's. Where the broker
// shares the partitions, reading would let it move them under the transaction.
func (f *feed[TX]) readAhead(ctx context.Context) {
	if len(f.ahead) > 0 {
		return
	}
	deliveries, err := f.subscription.Poll(ctx, f.p.config.window(), 0)
	if err == nil { // else the next poll says so
		f.ahead = f.decode(deliveries)
	}
}

func (f *feed[TX]) noteOldest() {
	var oldest time.Time
	for _, items := range [][]*item{f.pending, f.ahead} {
		for _, it := range items {
			if at := it.delivery.Timestamp; oldest.IsZero() || at.Before(oldest) {
				oldest = at
			}
		}
	}
	f.p.condition.update(func(c *condition) { c.oldest = oldest })
}

// advance settles some of what is pending.
func (f *feed[TX]) advance(ctx, work context.Context) {
	if !f.claim(ctx) {
		return
	}
	trial, ok := f.waitWhilePaused(ctx)
	switch {
	case !ok:
	case trial:
		f.lookFurther(ctx)
		f.probe(ctx, work)
	default:
		f.handle(ctx, work, f.next(), false)
	}
}

// probe tries events of a paused processor, one at a time, until one succeeds.
// With each trial it may be one more, as long as they fail fast and were not tried
// before: a few good ones among many bad ones would else be found by luck alone.
func (f *feed[TX]) probe(ctx, work context.Context) {
	defer f.p.pause.tried(fromStream)
	began := now()
	for i := range f.p.pause.probes() {
		if len(f.pending) == 0 || ctx.Err() != nil {
			return
		}
		items := anyKey(f.next())
		if i > 0 && items[0].trials > 0 {
			return
		}
		f.handle(ctx, work, items, true)
		if on, _, _ := f.p.pause.state(fromStream); !on || now().Sub(began) >= f.p.config.PauseMin {
			return
		}
	}
}

func (f *feed[TX]) handle(ctx, work context.Context, items []*item, trial bool) {
	first := items[0]
	if !f.readers.isCareful(first.partition) {
		f.parallel(ctx, work, items, trial)
		return
	}
	f.reach = 0
	err := f.carefully(ctx, first, func() (int, error) {
		n, err := f.settle(ctx, work, items, trial)
		f.done(items[:n])
		return n, err
	})
	f.failed(ctx, work, items, err)
}

func (f *feed[TX]) settle(ctx, work context.Context, items []*item, trial bool) (int, error) {
	items, err := f.p.callAhead(ctx, work, items, trial)
	if err != nil || len(items) == 0 {
		return 0, err
	}
	batch := &batch[TX]{p: f.p, work: work, trial: trial, size: f.p.size}
	return batch.settle(ctx, items, func(it *item) bool { return f.readers.mayCommit(it.partition) })
}

// parallel settles the events in several transactions at once, those of one key
// in one. What is settled need not be the first of what is pending: the positions
// find out up to where nothing is open.
func (f *feed[TX]) parallel(ctx, work context.Context, items []*item, trial bool) {
	parts := split(items, f.parts(len(items)), f.p.config.BatchSize)
	type result struct {
		settled int
		err     error
	}
	results := make([]result, len(parts))
	var workers sync.WaitGroup
	for i, part := range parts {
		workers.Go(func() {
			leave := f.p.alone.share(ctx)
			if leave == nil {
				return
			}
			defer leave()
			results[i].settled, results[i].err = f.settle(ctx, work, part, trial)
		})
	}
	if f.share != nil && len(parts) == 1 && !trial {
		f.commit(work)
		f.readAhead(ctx)
	}
	workers.Wait()
	for i, part := range parts {
		f.done(part[:results[i].settled])
	}
	for i, part := range parts {
		f.failed(ctx, work, part, results[i].err)
	}
}

// parts returns among how many transactions so many events are divided.
func (f *feed[TX]) parts(n int) int {
	return min(f.p.pace.parts(min(n, f.p.config.window()), f.p.config.Workers), n)
}

// split divides the events by their keys into at most n parts, each in order
// and of at most so many; what is too much is left for later.
func split(items []*item, n, most int) [][]*item {
	if n = min(n, len(items)); n == 1 {
		return [][]*item{items[:min(len(items), most)]}
	}
	seed := maphash.MakeSeed()
	parts := make([][]*item, n)
	for _, it := range items {
		if i := maphash.Comparable(seed, it.key) % uint64(n); len(parts[i]) < most {
			parts[i] = append(parts[i], it)
		}
	}
	return slices.DeleteFunc(parts, func(part []*item) bool { return len(part) == 0 })
}

// claim makes sure that this process has its row for each partition that it
// received something of.
func (f *feed[TX]) claim(ctx context.Context) bool {
	if f.share != nil {
		// Only what is claimed is assigned, and what is lost is forgotten.
		return true
	}
	for _, it := range f.pending {
		if f.readers.has(it.partition) {
			continue
		}
		if _, err := f.readers.claim(ctx, it.partition); err != nil {
			f.trouble(ctx, troubleDatabase, err)
			return false
		}
		tell(f.p.config.Events.Readers, ReadersInfo{Partitions: f.readers.partitions()})
	}
	return true
}

// waitWhilePaused waits until an event may be tried, and reports whether it is
// a trial. ok is false when ctx ended, or the wait was long enough to look at the
// partitions again.
func (f *feed[TX]) waitWhilePaused(ctx context.Context) (trial, ok bool) {
	on, wait, resumed := f.p.pause.state(fromStream)
	if !on {
		return false, true
	}
	if wait <= 0 {
		return true, true
	}
	timer := time.NewTimer(min(wait, time.Second))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-resumed:
	case <-ctx.Done():
	}
	return false, false
}

// unmark takes back the marks of events that this process began and leaves
// unsettled, alive: they have ended no process.
func (f *feed[TX]) unmark(ctx context.Context) {
	for _, it := range f.pending {
		if it.marked {
			if _, err := f.readers.mark(ctx, it.partition, ""); err != nil && !errors.Is(err, store.ErrStale) {
				f.p.config.Logger.Warn("consumer could not take back its crash mark", "error", err)
			}
		}
	}
}

// next returns the first of the pending events that may be settled at once.
func (f *feed[TX]) next() []*item {
	for i, it := range f.pending {
		if it.solo || f.readers.isCareful(it.partition) {
			return f.pending[:max(i, 1)]
		}
	}
	return f.pending
}

// What a paused processor keeps in memory to find an event that succeeds.
const (
	maxAhead      = 32 << 20 // bytes of data
	maxAheadReads = 16       // times what is read at once
)

// lookFurther reads more once the first trials have failed: all that is pending
// may be bad, and what proves the handler able may lie behind it.
func (f *feed[TX]) lookFurther(ctx context.Context) {
	data, isTried := 0, false
	for _, it := range f.pending {
		data += len(it.delivery.Record.Value)
		isTried = isTried || it.trials > 0
	}
	if isTried && data < maxAhead && len(f.pending) < maxAheadReads*f.p.config.window() {
		f.poll(ctx, min(len(f.pending), maxAheadReads*f.p.config.window()-len(f.pending)), time.Millisecond)
	}
}

// anyKey returns one event that is the first of its key among the items, and of
// these one that was tried least: what is at the head may have trouble of its
// own, and hundreds like it may follow before an event that can tell that all is
// well.
func anyKey(items []*item) []*item {
	seen := make(map[store.HeldKeyRef]bool, len(items))
	var first []int
	for i, it := range items {
		if seen[it.key] {
			continue
		}
		seen[it.key] = true
		if len(first) > 0 && it.trials < items[first[0]].trials {
			first = first[:0]
		}
		if len(first) == 0 || it.trials == items[first[0]].trials {
			first = append(first, i)
		}
	}
	i := first[rand.IntN(len(first))]
	return items[i : i+1]
}

// carefully handles one event after an unclean stop: all alone, its mark
// committed before, so that the process that comes after this one knows which
// event took it down.
func (f *feed[TX]) carefully(ctx context.Context, it *item, settle func() (int, error)) error {
	leave := f.p.alone.exclude(ctx)
	if leave == nil {
		return nil
	}
	defer leave()
	known, err := f.known(ctx, it)
	if err != nil {
		return err
	}
	if !known && it.fail == nil && !it.marked {
		// One mark for all attempts of one process: it counts processes. An event
		// that is settled already leaves the mark alone: it would hide the one
		// behind it.
		tries, err := f.readers.mark(ctx, it.partition, it.event.ID)
		if err != nil {
			return err
		}
		it.marked = true
		if tries > f.p.config.CrashTries {
			it.fail = &failure{
				err:   fmt.Errorf("%w: it was begun %d times and never came to an end", ErrHandlerCrash, tries-1),
				final: true,
			}
		}
	}
	settled, err := settle()
	if settled > 0 && f.readers.passed(it.partition) {
		if _, err := f.readers.mark(ctx, it.partition, ""); err != nil && !errors.Is(err, store.ErrStale) {
			f.p.config.Logger.Warn("consumer could not clear its crash mark", "error", err)
		}
	}
	return err
}

// known reports whether an event is consumed or held.
func (f *feed[TX]) known(ctx context.Context, it *item) (bool, error) {
	group := f.p.config.Group
	held, err := f.p.st.ListHeld(ctx, group, store.HeldFilter{EventID: it.event.ID, Limit: 1})
	if err != nil || len(held) > 0 {
		return len(held) > 0, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	tx, err := f.p.st.BeginInbox(ctx)
	if err != nil {
		return false, err
	}
	defer rollback(ctx, tx)
	return tx.IsConsumed(ctx, group, it.event.ID, false)
}

// done forgets what is settled.
func (f *feed[TX]) done(settled []*item) {
	if len(settled) == 0 {
		return
	}
	gone := make(map[*item]bool, len(settled))
	for _, it := range settled {
		f.positions.settle(it.partition, it.delivery.Position)
		gone[it] = true
	}
	// A new slice: parts of the old one are still in use.
	kept := make([]*item, 0, len(f.pending)-len(settled))
	for _, it := range f.pending {
		if !gone[it] {
			kept = append(kept, it)
		}
	}
	f.pending = kept
	f.failures = 0
	f.p.condition.fine(troubleDatabase)
	f.noteOldest()
}

// failed decides how to go on after a transaction of which nothing remains.
func (f *feed[TX]) failed(ctx, work context.Context, items []*item, err error) {
	var died *diedError
	switch {
	case err == nil || work.Err() != nil:
		return
	case isMoved(err): // another transaction was faster; what it did is seen now
		tell(f.p.config.Events.Conflict, ConflictInfo{Events: len(items), Err: err})
		f.failures++
		pauseFor(ctx, backoff(min(f.failures, 5), time.Millisecond, retryLast))
		return
	case errors.Is(err, errAbandoned), errors.Is(err, errTaken): // its event has a verdict now, or waits
		tell(f.p.config.Events.Conflict, ConflictInfo{Events: len(items), Err: err})
		return
	case errors.Is(err, errNotOurs): // its partition is forgotten next
		tell(f.p.config.Events.Conflict, ConflictInfo{Events: len(items), Err: err})
		f.failures++
		pauseFor(ctx, backoff(f.failures, time.Millisecond, retryLast))
		return
	case errors.Is(err, store.ErrStale):
		return
	case errors.As(err, &died) && (len(items) > 1 || died.blame):
		tell(f.p.config.Events.Conflict, ConflictInfo{Events: len(items), Err: err})
		f.p.config.Logger.Debug("transaction died, its events are done again one by one", "events", len(items), "error", err)
		// Where the one that does it is not known, one by one will tell.
		for _, it := range items {
			it.solo = it.solo || died.at == nil || died.at == it
		}
		if len(items) > 1 {
			f.failures++
			pauseFor(ctx, backoff(f.failures, time.Millisecond, retryLast))
			return
		}
		if it := items[0]; it.fail == nil {
			if it.deaths++; it.deaths >= maxDeaths {
				it.fail = failureOf(err, "")
				return
			}
		}
		f.failures++
		pauseFor(ctx, backoff(f.failures, 10*time.Millisecond, retryLast))
		if f.failures >= maxDeaths {
			f.p.condition.complain(troubleDatabase, err)
		}
		return
	}
	f.trouble(ctx, troubleDatabase, err)
}

// trouble notes that something does not answer, and waits.
func (f *feed[TX]) trouble(ctx context.Context, source string, err error) {
	if ctx.Err() != nil {
		return
	}
	f.failures++
	f.p.condition.complain(source, err)
	pauseFor(ctx, backoff(f.failures, retryFirst, retryLast))
}

// commit tells the broker what is settled. A failure is harmless: what the
// broker does not know comes again, and is found consumed.
func (f *feed[TX]) commit(work context.Context) {
	ready := f.positions.ready()
	if len(ready) == 0 {
		f.p.condition.fine(troublePosition)
		return
	}
	ctx, cancel := context.WithTimeout(work, leaveTimeout)
	defer cancel()
	err := f.subscription.Commit(ctx, ready)
	if err != nil && len(ready) > 1 {
		// One partition that is not ours any more must not keep back the others.
		var failed []broker.Position
		for _, position := range ready {
			if f.subscription.Commit(ctx, []broker.Position{position}) != nil {
				failed = append(failed, position)
			} else {
				f.positions.committed(position)
			}
		}
		ready = failed
		if len(failed) == 0 {
			err = nil
		}
	}
	if err != nil {
		f.p.condition.complain(troublePosition, err)
		for _, position := range ready {
			f.positions.missed(position, f.pollFailures > 0)
		}
		return
	}
	f.p.condition.fine(troublePosition)
	for _, position := range ready {
		f.positions.committed(position)
	}
	tell(f.p.config.Events.Committed, CommittedInfo{Positions: ready})
}
