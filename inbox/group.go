package inbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/waybillhq/waybill/internal/fault"
	"github.com/waybillhq/waybill/store"
)

// groupSize is how many events run between one savepoint and its release. All of
// them are marked by one statement, so a large group costs an event next to
// nothing; but when one fails, those before it in the group have to be done
// again. The size therefore halves with each failure and doubles with each group
// that went well: with failures of one event in n it stays near n.
type groupSize struct {
	mu   sync.Mutex
	size int
	most int
}

func newGroupSize(most int) *groupSize { return &groupSize{size: most, most: most} }

func (s *groupSize) get() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.size
}

// well notes that n events, all that were wanted, went well.
func (s *groupSize) well(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n >= s.size {
		s.size = min(2*s.size, s.most)
	}
}

// badly notes that a group had to end after n events.
func (s *groupSize) badly(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.size = max(min(n, s.size/2), 1)
}

// member is an event of a group.
type member struct {
	*item
	outcome store.Outcome
	step    int // the gate's mark before it
}

// group settles events that may run, up to the first that may not: they are
// marked as consumed, and then their handlers run, all between one savepoint and
// its release. When a handler fails, nothing of the group stays but the verdict,
// with which the event is set aside when its turn comes; those before it are done
// again.
func (b *batch[TX]) group(stop context.Context, items []*item, isCut bool) (n int, more bool, err error) {
	begin, news := b.gate.mark(), len(b.news)
	members := b.gather(items)
	died := func(at *item, blame bool, err error) (int, bool, error) {
		return 0, false, &diedError{at: at, blame: blame, err: err}
	}
	if err := b.tx.Savepoint(b.ctx); err != nil {
		return died(items[0], false, err)
	}
	rows := make([]store.Consumed, len(members))
	for i, m := range members {
		rows[i] = m.consumed(b.p.config.Group, m.outcome)
	}
	first, err := b.tx.MarkAll(b.ctx, rows)
	if err != nil {
		return died(items[0], false, err)
	}
	done := b.handle(stop, members, first, isCut)
	switch {
	case done.isCut:
		if err := b.cut(members[done.n:], first[done.n:]); err != nil {
			return died(members[done.n].item, false, err)
		}
		members = members[:done.n]
	case done.ended != nil:
		return 0, false, b.ended(members[done.n:], first[done.n:], errors.Join(done.run.err, done.ended))
	case done.n < len(members):
		return b.failed(members[done.n], done, begin, news)
	}
	if err := b.tx.Release(b.ctx); err != nil {
		return b.unreleased(members, begin, news, err)
	}
	b.size.well(len(members))
	return len(members), len(members) > 0, nil
}

// handled is how far the handlers of a group came.
type handled struct {
	n     int   // how many went well
	run   run   // of the one after these, where there is one
	isCut bool  // no further one was begun
	ended error // its statements ended the transaction
}

// handle runs the handlers of a group up to the first that fails, in a goroutine
// of their own.
func (b *batch[TX]) handle(stop context.Context, members []member, first []bool, isCut bool) handled {
	var done handled
	began := now()
	lost := b.p.attend(b.ctx, func(a *attendant) { done = b.handleHere(stop, a, members, first, isCut) })
	if lost != nil {
		return handled{n: lost.index, run: lost.run}
	}
	b.p.pace.note(done.n, now().Sub(began))
	return done
}

func (b *batch[TX]) handleHere(stop context.Context, a *attendant, members []member, first []bool, isCut bool) handled {
	for i, m := range members {
		if (i > 0 || isCut) && b.enough(stop) {
			return handled{n: i, isCut: true}
		}
		b.watch.restart()
		switch {
		case !first[i]:
			b.duplicate(m.item, false)
			continue
		case m.outcome != store.Applied:
			b.applied(m.item, m.outcome)
			continue
		}
		fault.Point("inbox.inserted")
		r := b.p.call(withResults(b.ctx, m.run), a, b.tx.Handle(), i, m.event, 1)
		fault.Point("inbox.effect")
		sound := b.tx.Sound()
		if errors.Is(sound, store.ErrEnded) {
			return handled{n: i, run: r, ended: sound}
		}
		if r.err == nil {
			r.err = b.finish(m.item, sound)
		}
		if r.err != nil {
			return handled{n: i, run: r}
		}
		b.p.pause.succeeded()
		b.applied(m.item, store.Applied)
	}
	return handled{n: len(members)}
}

// failed decides about an event whose handler did not go well.
func (b *batch[TX]) failed(m member, done handled, begin, news int) (n int, more bool, err error) {
	r := done.run
	if r.abandoned {
		b.tx.Abort()
	}
	switch {
	case r.stopped: // by the grace period, or by the watch
		return 0, false, &diedError{at: m.item, blame: b.work.Err() == nil, err: r.err}
	case r.abandoned:
		m.fail = failureOf(r.err, "")
		return 0, false, errAbandoned
	}
	if err := b.undo(begin, news); err != nil {
		return 0, false, &diedError{at: m.item, blame: true, err: errors.Join(r.err, err)}
	}
	b.size.badly(done.n)
	if b.trial {
		m.trials++
		if m.trials <= len(b.p.config.Schedule) {
			return 0, false, nil
		}
	}
	m.fail = failureOf(r.err, r.stack)
	return 0, true, nil
}

// gather returns the events of the next group. The gate takes it that all go
// well.
func (b *batch[TX]) gather(items []*item) []member {
	limit := b.size.get()
	if b.trial {
		limit = 1
	}
	seen := make(map[string]bool, min(limit, len(items)))
	var members []member
	for _, it := range items {
		d := b.admit(it)
		if len(members) == limit || d != mayRun && d != isOld || seen[it.event.ID] || d == mayRun && b.p.wantsCall(it) {
			break
		}
		seen[it.event.ID] = true
		m := member{item: it, outcome: store.Applied, step: b.gate.mark()}
		switch {
		case it.event.IsSkipMarker():
			m.outcome = store.ConsumedSkipped
		case d == isOld:
			m.outcome = store.Stale
		}
		b.gate.pass(&it.event)
		members = append(members, m)
	}
	return members
}

// finish is what follows a handler that is content with its work: an error that
// it kept to itself must not be another's, and what it has overtaken is settled.
func (b *batch[TX]) finish(it *item, sound error) error {
	if sound != nil {
		return fmt.Errorf("the handler left the transaction unusable: %w", sound)
	}
	state := b.keys[it.key]
	if state == nil || !b.p.isLatest() {
		return nil
	}
	kept := state.held[:0:0]
	for _, h := range state.held {
		if !isBelow(&h.Event, &it.event) {
			kept = append(kept, h)
			continue
		}
		if err := overtake(b.ctx, b.tx, b.p.config.Group, &h); err != nil {
			return err
		}
		b.news = append(b.news, func() { b.p.tellOvertaken(&h) })
	}
	state.held = kept
	state.blocked = state.isPart || slices.ContainsFunc(kept, func(h store.Held) bool { return b.p.keepsBack(&h) })
	return nil
}

// overtake settles a held event as stale.
func overtake[TX any](ctx context.Context, tx store.InboxTx[TX], group string, h *store.Held) error {
	_, err := tx.MarkConsumed(ctx, store.Consumed{
		Group: group, Event: h.Event, Outcome: store.Stale, Topic: h.Topic, Partition: h.Partition, Position: h.Position,
	})
	if err != nil {
		return err
	}
	_, err = tx.DeleteHeld(ctx, group, h.Event.ID)
	return err
}

// cut takes back the marks of events whose handlers will not run now.
func (b *batch[TX]) cut(members []member, first []bool) error {
	b.size.badly(b.size.get())
	b.gate.back(members[0].step)
	var ids []string
	for i, m := range members {
		if first[i] {
			ids = append(ids, m.event.ID)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	return b.tx.Unmark(b.ctx, b.p.config.Group, ids)
}

// undo takes back a group: from the database, from the gate, and from what is
// known of its keys.
func (b *batch[TX]) undo(step, news int) error {
	if err := b.tx.RollbackTo(b.ctx); err != nil {
		return err
	}
	b.gate.back(step)
	b.news = b.news[:news]
	if !b.p.isLatest() {
		return nil
	}
	for key := range b.keys {
		delete(b.keys, key)
		if _, err := b.lock(key); err != nil {
			return err
		}
	}
	return nil
}

// ended deals with a handler whose statements have ended the transaction, and
// perhaps kept what was in it. Nobody knows what became of its event, so a person
// is asked; the marks of those behind it, which have not run, are taken back. What
// ran before it is found consumed when it comes again.
func (b *batch[TX]) ended(members []member, first []bool, cause error) error {
	var ids []string
	for i, m := range members {
		if first[i] {
			ids = append(ids, m.event.ID)
		}
	}
	members[0].fail = failureOf(Park(fmt.Errorf("the handler ended the transaction: %w", cause)), "")
	rollback(b.ctx, b.tx)
	for failures := 1; ; failures++ {
		err := b.p.unmark(b.work, ids)
		if err == nil {
			return errAbandoned
		}
		b.p.condition.complain(troubleDatabase, err)
		if !pauseFor(b.work, backoff(failures, retryFirst, retryLast)) {
			return err
		}
	}
}

// unmark takes back marks that are committed.
func (p *Processor[TX]) unmark(work context.Context, ids []string) error {
	ctx, cancel := context.WithCancel(work)
	defer cancel()
	tx, err := p.st.BeginInbox(ctx)
	if err != nil {
		return err
	}
	defer rollback(ctx, tx)
	if err := tx.Unmark(ctx, p.config.Group, ids); err != nil {
		return err
	}
	return tx.Commit(ctx)
}

// unreleased deals with a savepoint that is gone, or cannot be released, though
// no handler complained. Of a single event it is the handler's failure; of
// several one by one will tell.
func (b *batch[TX]) unreleased(members []member, step, news int, err error) (int, bool, error) {
	err = fmt.Errorf("the handler left the transaction unusable: %w", err)
	if len(members) == 0 {
		return 0, false, &diedError{err: err}
	}
	last := members[len(members)-1].item
	if undoErr := b.undo(step, news); undoErr != nil {
		return 0, false, &diedError{at: last, blame: true, err: errors.Join(err, undoErr)}
	}
	b.size.badly(1)
	if len(members) == 1 {
		last.fail = failureOf(err, "")
	}
	return 0, true, nil
}
