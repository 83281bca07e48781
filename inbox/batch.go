package inbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/internal/fault"
	"github.com/waybillhq/waybill/store"
)

// batch settles events of the stream in one transaction.
type batch[TX any] struct {
	p     *Processor[TX]
	work  context.Context
	trial bool // paused: the first run of the handler decides, and its failure holds nothing
	size  *groupSize

	ctx   context.Context
	tx    store.InboxTx[TX]
	watch *watch
	began time.Time
	keys  map[store.HeldKeyRef]*keyState // the locked ones
	gate  *gate
	// horizon is how far back the group remembers, where that was asked.
	horizon time.Time
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

	b.began = now()
	tx, err := b.p.st.BeginInbox(ctx)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", errBegin, err)
	}
	b.tx = tx
	defer rollback(ctx, tx)
	if err := b.prepare(items); err != nil {
		return 0, &diedError{err: err}
	}
	if err := b.finishCalls(items); err != nil {
		return 0, err
	}
	settled := 0
	for more := true; more && settled < len(items); {
		if settled > 0 && b.enough(stop) {
			break
		}
		var n int
		if n, more, err = b.some(stop, items[settled:], settled > 0); err != nil {
			return 0, err
		}
		settled += n
	}
	if settled == 0 {
		return 0, nil
	}
	if err := b.commit(items[:settled], mayCommit); err != nil {
		return 0, err
	}
	for _, say := range b.news {
		say()
	}
	tell(b.p.config.Events.Batch, BatchInfo{Events: settled, Took: now().Sub(b.began), OldestAge: oldestAge(items[:settled])})
	return settled, nil
}

// enough reports whether the transaction should take no further event.
func (b *batch[TX]) enough(stop context.Context) bool {
	return stop.Err() != nil || now().Sub(b.began) >= b.p.config.longest()
}

func (b *batch[TX]) commit(items []*item, mayCommit func(*item) bool) error {
	b.watch.restart()
	woken, err := b.gate.write(b.ctx, b.tx)
	if err != nil {
		return &diedError{err: err}
	}
	for _, it := range items {
		if !mayCommit(it) {
			return errNotOurs
		}
	}
	b.watch.restart()
	if err := b.tx.Commit(b.ctx); err != nil {
		return &diedError{blame: true, err: err}
	}
	fault.Point("inbox.committed")
	if woken > 0 {
		b.p.wakeReleaser()
	}
	return nil
}

// prepare reads what the decisions depend on: what is held of the events' keys,
// and how far their aggregates are.
func (b *batch[TX]) prepare(items []*item) error {
	if err := b.lookBack(items); err != nil {
		return err
	}
	if err := b.lockHeld(items); err != nil {
		return err
	}
	b.gate = newGate(&b.p.config)
	return b.gate.load(b.ctx, b.tx.ReadProgress, func(yield func(*waybill.Event) bool) {
		for _, it := range items {
			if !yield(&it.event) {
				return
			}
		}
	})
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

// some settles one event that does not run, or a group of those that do. It
// reports how many are settled, and whether the batch may go on.
func (b *batch[TX]) some(stop context.Context, items []*item, isCut bool) (n int, more bool, err error) {
	it := items[0]
	b.watch.restart()
	switch b.admit(it) {
	case settledAlready:
		b.duplicate(it, !it.known)
		if it.known && b.gate.ask(&it.event) == passes {
			b.gate.pass(&it.event)
		}
		return 1, true, nil
	case mustWait:
		return b.setAside(it, nil, store.HeldBlocked)
	case hasGap:
		verdict, err := b.gate.lock(b.ctx, b.tx, &it.event)
		switch {
		case err != nil:
			return 0, false, &diedError{at: it, err: err}
		case verdict == mustAwait:
			return b.setAside(it, nil, store.HeldWaiting)
		}
		return 0, true, nil // it need not wait any more
	case mayRun:
		if b.p.wantsCall(it) {
			return 0, false, nil // it may run after all: its call comes first
		}
	case willFail:
		return b.setAside(it, it.fail, store.HeldRetry)
	}
	return b.group(stop, items, isCut)
}

// decision is what the stages before the handler say of an event.
type decision uint8

const (
	mayRun decision = iota
	isOld           // below what its aggregate has reached
	settledAlready
	mustWait // behind another one of its key
	hasGap   // for a lower version
	willFail // the handler has had its say already
)

// admit is where an event's fate is decided before its handler may run. The
// gate is asked first about what is old, which nothing held can change, and last
// about a gap: what is blocked is put in order when it is released.
func (b *batch[TX]) admit(it *item) decision {
	state := b.keys[it.key]
	if it.known || state != nil && state.ids[it.event.ID] {
		return settledAlready
	}
	verdict := b.gate.ask(&it.event)
	switch {
	case verdict == isStale:
		return isOld
	case state != nil && state.keepsBack(b.p, &it.event):
		return mustWait
	case verdict == mustAwait:
		return hasGap
	case it.fail == nil && b.mayBeForgotten(it) && b.gate.isLast(&it.event):
		return isOld
	case it.fail == nil && b.mayBeForgotten(it):
		it.fail = failureOf(Park(errForgotten), "")
		return willFail
	case it.fail != nil:
		return willFail
	}
	return mayRun
}

// applied and duplicate note what to tell after the commit.

func (b *batch[TX]) applied(it *item, outcome store.Outcome) {
	b.news = append(b.news, func() {
		p := b.p
		if outcome != store.Stale {
			if seen, late := p.versions.note(&it.event); late {
				tell(p.config.Events.OutOfOrder, OutOfOrderInfo{Event: it.event, Seen: seen})
			}
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
