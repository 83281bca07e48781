package inbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/waybillhq/waybill/internal/fault"
	"github.com/waybillhq/waybill/store"
)

// batch settles events of the stream in one transaction.
type batch[TX any] struct {
	p     *Processor[TX]
	work  context.Context
	trial bool // paused: the first run of the handler decides, and its failure holds nothing

	ctx   context.Context
	tx    store.InboxTx[TX]
	watch *watch
	keys  map[store.HeldKeyRef]*keyState // the locked ones
	// news is what to tell once the transaction is committed.
	news []func()
}

// diedError says that the transaction came to an end under an event.
type diedError struct {
	at    *item
	blame bool // its handler had run, so the event may be the cause
	err   error
}

func (e *diedError) Error() string { return fmt.Sprintf("transaction died: %v", e.err) }
func (e *diedError) Unwrap() error { return e.err }

var (
	// errAbandoned says that a handler did not return, so the transaction had to
	// be aborted. The event has its verdict; the others are done again.
	errAbandoned = errors.New("a handler was abandoned")
	// errBegin says that no transaction could be begun.
	errBegin = errors.New("no transaction")
	// errNotOurs says that a partition's lease was lost before the commit.
	errNotOurs = errors.New("the partition's lease was lost")
)

// settle settles the longest prefix of the items that it can, in one
// transaction, and returns its length. After an error nothing is settled.
func (b *batch[TX]) settle(stop context.Context, items []*item, mayCommit func(*item) bool) (int, error) {
	ctx, cancel := context.WithCancelCause(b.work)
	defer cancel(nil)
	b.ctx = ctx
	b.watch = newWatch(b.p.config.HandlerTimeout, cancel)
	defer b.watch.stop()

	began := now()
	tx, err := b.p.st.BeginInbox(ctx)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", errBegin, err)
	}
	b.tx = tx
	defer rollback(ctx, tx)
	if err := b.lockHeld(items); err != nil {
		return 0, &diedError{err: err}
	}
	settled, last := 0, items[0]
	for _, it := range items {
		if settled > 0 && (stop.Err() != nil || now().Sub(began) >= b.p.config.longest()) {
			break
		}
		b.watch.restart()
		last = it
		done, more, err := b.one(it)
		if err != nil {
			return 0, err
		}
		if done {
			settled++
		}
		if !more {
			break
		}
	}
	if settled == 0 {
		return 0, nil
	}
	for _, it := range items[:settled] {
		if !mayCommit(it) {
			return 0, errNotOurs
		}
	}
	b.watch.restart()
	if err := tx.Commit(ctx); err != nil {
		return 0, &diedError{at: last, blame: true, err: err}
	}
	fault.Point("inbox.committed")
	for _, say := range b.news {
		say()
	}
	tell(b.p.config.Events.Batch, BatchInfo{Events: settled, Took: now().Sub(began), OldestAge: oldestAge(items[:settled])})
	return settled, nil
}

// lockHeld finds, without a lock, which keys have held events, and locks those.
// A key that gets its first held event from another reader after this look is
// found when something of it fails here, under its lock; when nothing fails, the
// other reader finds the ids of these events consumed.
func (b *batch[TX]) lockHeld(items []*item) error {
	b.keys = make(map[store.HeldKeyRef]*keyState)
	var keys []store.HeldKeyRef
	seen := make(map[store.HeldKeyRef]bool, len(items))
	for _, it := range items {
		if !seen[it.key] {
			seen[it.key] = true
			keys = append(keys, it.key)
		}
	}
	held, err := b.tx.KeysHeld(b.ctx, b.p.config.Group, keys)
	if err != nil {
		return err
	}
	// One order for all transactions, so that two of them cannot wait for each other.
	slices.SortFunc(held, func(x, y store.HeldKeyRef) int {
		return cmp.Or(cmp.Compare(x.Topic, y.Topic), cmp.Compare(x.Key, y.Key))
	})
	for _, key := range held {
		if _, err := b.lock(key); err != nil {
			return err
		}
	}
	return nil
}

// one takes one event through the stages. It reports whether the event is
// settled, and whether the batch may go on with the next.
func (b *batch[TX]) one(it *item) (done, more bool, err error) {
	if it.known {
		b.duplicate(it, false)
		return true, true, nil
	}
	switch decision, err := b.admit(it); {
	case err != nil:
		return false, false, &diedError{at: it, err: err}
	case decision == settledAlready:
		return true, true, nil
	case decision == mustWait:
		return b.setAside(it, nil)
	}
	if it.fail != nil {
		return b.setAside(it, it.fail)
	}
	return b.apply(it)
}

// decision is what the stages before the handler say of an event.
type decision uint8

const (
	mayRun decision = iota
	settledAlready
	mustWait
)

// admit is where an event's fate is decided before its handler may run. Today
// what is held decides; a gate that counts versions has its place here, before
// the block.
func (b *batch[TX]) admit(it *item) (decision, error) {
	state := b.keys[it.key]
	switch {
	case state == nil:
		return mayRun, nil
	case state.ids[it.event.ID]:
		b.duplicate(it, true)
		return settledAlready, nil
	case state.blocked:
		return mustWait, nil
	}
	return mayRun, nil
}

// apply runs the handler between a savepoint and its release, the event's id
// inserted first.
func (b *batch[TX]) apply(it *item) (done, more bool, err error) {
	died := func(blame bool, err error) (bool, bool, error) {
		return false, false, &diedError{at: it, blame: blame, err: err}
	}
	outcome := store.Applied
	if it.event.IsSkipMarker() {
		outcome = store.ConsumedSkipped
	}
	if err := b.tx.Savepoint(b.ctx); err != nil {
		return died(false, err)
	}
	first, err := b.tx.MarkConsumed(b.ctx, it.consumed(b.p.config.Group, outcome))
	if err != nil {
		return died(false, err)
	}
	fault.Point("inbox.inserted")
	if !first || outcome == store.ConsumedSkipped {
		if err := b.tx.Release(b.ctx); err != nil {
			return died(false, err)
		}
		if first {
			b.applied(it, outcome)
		} else {
			b.duplicate(it, false)
		}
		return true, true, nil
	}

	r := b.p.call(b.ctx, b.tx.Handle(), it.event, 1)
	fault.Point("inbox.effect")
	if r.abandoned {
		b.tx.Abort()
	}
	switch {
	case r.stopped: // by the grace period, or by the watch
		return died(b.work.Err() == nil, r.err)
	case r.abandoned:
		it.fail = failureOf(r.err, "")
		return false, false, errAbandoned
	case r.err == nil:
		releaseErr := b.tx.Release(b.ctx)
		if releaseErr == nil {
			b.p.pause.succeeded()
			b.applied(it, outcome)
			return true, true, nil // a success ends the pause
		}
		// An error that the handler kept to itself: either the savepoint can still
		// be rolled back to, or the whole transaction is gone.
		r.err = fmt.Errorf("the handler left the transaction unusable: %w", releaseErr)
	}
	if err := b.tx.RollbackTo(b.ctx); err != nil {
		return died(true, errors.Join(r.err, err))
	}
	if b.trial {
		it.trials++
		if it.trials <= len(b.p.config.Schedule) {
			return false, false, nil
		}
	}
	return b.setAside(it, failureOf(r.err, r.stack))
}

// applied and duplicate note what to tell after the commit.

func (b *batch[TX]) applied(it *item, outcome store.Outcome) {
	b.news = append(b.news, func() {
		p := b.p
		if seen, late := p.versions.note(&it.event); late {
			tell(p.config.Events.OutOfOrder, OutOfOrderInfo{Event: it.event, Seen: seen})
		}
		tell(p.config.Events.Applied, AppliedInfo{
			Event: it.event, Outcome: outcome, Partition: it.partition, Position: it.delivery.Position, Age: age(it),
		})
	})
}

func (b *batch[TX]) duplicate(it *item, isHeld bool) {
	b.news = append(b.news, func() {
		p := b.p
		p.config.Logger.Debug("duplicate", "event", it.event.ID, "held", isHeld)
		tell(p.config.Events.Duplicate, DuplicateInfo{
			Event: it.event, Partition: it.partition, Position: it.delivery.Position, IsHeld: isHeld,
		})
	})
}

func age(it *item) time.Duration {
	if it.delivery.Timestamp.IsZero() {
		return 0
	}
	return max(now().Sub(it.delivery.Timestamp), 0)
}

func oldestAge(items []*item) time.Duration {
	var oldest time.Duration
	for _, it := range items {
		oldest = max(oldest, age(it))
	}
	return oldest
}

// rollback ends a transaction that may have ended already. It has a moment of
// its own, because the transaction's context may be over.
func rollback[TX any](ctx context.Context, tx store.InboxTx[TX]) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
	defer cancel()
	_ = tx.Rollback(ctx)
}

// watch ends a transaction in which nothing has moved for longer than a handler
// may take: a database that does not answer must not hold the processor.
type watch struct {
	timer *time.Timer
	limit time.Duration
}

var errStuck = errors.New("the database does not answer")

func newWatch(handlerTimeout time.Duration, cancel context.CancelCauseFunc) *watch {
	limit := handlerTimeout + 30*time.Second
	return &watch{limit: limit, timer: time.AfterFunc(limit, func() { cancel(errStuck) })}
}

func (w *watch) restart() { w.timer.Reset(w.limit) }
func (w *watch) stop()    { w.timer.Stop() }
