package inbox

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"github.com/waybillhq/waybill"
)

// maxStack bounds what is kept of a panic's stack, in bytes.
const maxStack = 8 << 10

// patience is how long a handler whose context has ended may take to return
// before the transaction is taken from it.
const patience = time.Second

// run is how a run of the handler ended.
type run struct {
	err       error
	stack     string
	panicked  bool
	timedOut  bool
	abandoned bool // it has not returned; the transaction must be aborted
	stopped   bool // the processor's grace period ended, which is not the event's fault
}

// attendant knows which handler runs in the goroutine that it looks after. The
// batch's own goroutine may give one up while it runs, and at no other time, so
// what the other goroutine has to itself between two handlers is never shared.
type attendant struct {
	mu      sync.Mutex
	isIn    bool // a handler runs
	isGone  bool // it was given up
	index   int
	event   waybill.Event
	attempt int
	began   time.Time
}

func (a *attendant) enter(index int, event *waybill.Event, attempt int, began time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.isIn, a.index, a.event, a.attempt, a.began = true, index, *event, attempt, began
}

// leave reports whether the handler that has returned was still waited for.
func (a *attendant) leave() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.isIn = false
	return !a.isGone
}

// giveUp gives up a handler that began before a point in time, if one runs that
// did. Otherwise it returns when the one that runs began.
func (a *attendant) giveUp(before time.Time) (bool, time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.isIn {
		return false, now()
	}
	a.isGone = a.began.Before(before)
	return a.isGone, a.began
}

// lost is a handler that did not come back from its goroutine.
type lost struct {
	index int
	run   run
}

// attend runs do, which calls handlers, in a goroutine of its own, so that one
// that does not return cannot hold up the rest. Several of them share one
// goroutine: to start one for each event costs more than many a handler. It
// returns nil when do has come to its end; otherwise do will not touch anything
// any more.
func (p *Processor[TX]) attend(work context.Context, do func(a *attendant)) *lost {
	a := &attendant{}
	finished, isDone := make(chan struct{}), false
	go func() {
		defer close(finished)
		do(a)
		isDone = true
	}()
	limit := p.config.HandlerTimeout + patience
	timer := time.NewTimer(limit)
	defer timer.Stop()
	ended, before := work.Done(), time.Time{}
	for {
		select {
		case <-finished:
			if isDone {
				return nil
			}
			r := run{err: errGoexit, panicked: true}
			if work.Err() != nil {
				r = run{err: context.Cause(work), stopped: true}
			}
			p.tellHandled(a, r)
			return &lost{a.index, r}
		case <-ended:
			ended, before = nil, now().Add(time.Hour) // whichever runs then
			timer.Reset(patience)
			continue
		case <-timer.C:
		}
		if before.IsZero() {
			// A handler's context has ended a while ago when its time is up here.
			isGone, began := a.giveUp(now().Add(-limit).Add(1))
			if !isGone {
				timer.Reset(max(began.Add(limit).Sub(now()), time.Millisecond))
				continue
			}
		} else if isGone, _ := a.giveUp(before); !isGone {
			timer.Reset(time.Millisecond) // it is between two, and will find that it is over
			continue
		}
		p.abandoned.add(finished)
		r := run{err: fmt.Errorf("%w of %v", ErrHandlerTimeout, p.config.HandlerTimeout), timedOut: true, abandoned: true}
		if work.Err() != nil {
			r = run{err: context.Cause(work), stopped: true, abandoned: true}
		}
		p.tellHandled(a, r)
		return &lost{a.index, r}
	}
}

var errGoexit = fmt.Errorf("%w: it ended its goroutine", ErrHandlerPanic)

// call runs the handler of the index-th event, within attend. It does not return
// where that has given it up.
func (p *Processor[TX]) call(work context.Context, a *attendant, tx TX, index int, event waybill.Event, attempt int) run {
	// What a handler does to its event must not change what is held of it.
	event.Data = bytes.Clone(event.Data)
	event.Headers = maps.Clone(event.Headers)

	ctx, cancel := context.WithTimeout(work, p.config.HandlerTimeout)
	defer cancel()
	a.enter(index, &event, attempt, now())
	r := p.invoke(ctx, tx, event)
	if !a.leave() {
		runtime.Goexit()
	}
	switch {
	case work.Err() != nil:
		r = run{err: context.Cause(work), stopped: true}
	case ctx.Err() != nil:
		// Late is late, even with a good answer: the limit must not depend on luck.
		err := fmt.Errorf("%w of %v", ErrHandlerTimeout, p.config.HandlerTimeout)
		if r.err != nil {
			err = fmt.Errorf("%w: %w", err, r.err)
		}
		r.err, r.timedOut = err, true
	}
	p.tellHandled(a, r)
	return r
}

func (p *Processor[TX]) invoke(ctx context.Context, tx TX, event waybill.Event) (r run) {
	defer func() {
		if v := recover(); v != nil {
			r = run{err: fmt.Errorf("%w: %v", ErrHandlerPanic, v), panicked: true, stack: clip(string(debug.Stack()), maxStack)}
		}
	}()
	r.err = p.handler(ctx, tx, event)
	return r
}

// tellHandled is called by whoever has the attendant to itself.
func (p *Processor[TX]) tellHandled(a *attendant, r run) {
	if p.config.Events.Handled == nil {
		return
	}
	tell(p.config.Events.Handled, HandledInfo{
		Event: a.event, Attempt: a.attempt, Took: now().Sub(a.began), Err: r.err, Panicked: r.panicked, TimedOut: r.timedOut,
	})
}

// abandoned remembers handlers that did not return in time.
type abandoned struct {
	mu      sync.Mutex
	running []<-chan struct{}
}

func (a *abandoned) add(finished <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	kept := a.running[:0]
	for _, r := range a.running {
		select {
		case <-r:
		default:
			kept = append(kept, r)
		}
	}
	a.running = append(kept, finished)
}

// wait waits for the handlers until ctx ends, and returns how many still run.
func (a *abandoned) wait(ctx context.Context) int {
	a.mu.Lock()
	running := a.running
	a.running = nil
	a.mu.Unlock()
	left := 0
	for _, r := range running {
		select {
		case <-r:
			continue
		default:
		}
		select {
		case <-r:
		case <-ctx.Done():
			left++
		}
	}
	return left
}
