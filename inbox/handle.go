package inbox

import (
	"bytes"
	"context"
	"fmt"
	"maps"
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

// call runs the handler, in a goroutine of its own, so that one that does not
// return cannot hold up the rest.
func (p *Processor[TX]) call(work context.Context, tx TX, event waybill.Event, attempt int) run {
	// What a handler does to its event must not change what is held of it.
	event.Data = bytes.Clone(event.Data)
	event.Headers = maps.Clone(event.Headers)

	ctx, cancel := context.WithTimeout(work, p.config.HandlerTimeout)
	defer cancel()
	began := now()
	answer := make(chan run, 1)
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		r := run{err: errGoexit}
		defer func() {
			if v := recover(); v != nil {
				r = run{err: fmt.Errorf("%w: %v", ErrHandlerPanic, v), panicked: true, stack: clip(string(debug.Stack()), maxStack)}
			}
			answer <- r
		}()
		r.err = p.handler(ctx, tx, event)
	}()

	r, ok := receive(ctx, answer)
	switch {
	case work.Err() != nil:
		r = run{err: context.Cause(work), stopped: true, abandoned: !ok}
	case !ok || ctx.Err() != nil:
		// Late is late, even with a good answer: the limit must not depend on luck.
		err := fmt.Errorf("%w of %v", ErrHandlerTimeout, p.config.HandlerTimeout)
		if ok && r.err != nil {
			err = fmt.Errorf("%w: %w", err, r.err)
		}
		r.err, r.timedOut, r.abandoned = err, true, !ok
	}
	if r.abandoned {
		p.abandoned.add(finished)
	}
	tell(p.config.Events.Handled, HandledInfo{
		Event: event, Attempt: attempt, Took: now().Sub(began), Err: r.err, Panicked: r.panicked, TimedOut: r.timedOut,
	})
	return r
}

var errGoexit = fmt.Errorf("%w: it ended its goroutine", ErrHandlerPanic)

// receive waits for the answer, and when ctx ends a moment longer.
func receive(ctx context.Context, answer <-chan run) (run, bool) {
	select {
	case r := <-answer:
		return r, true
	case <-ctx.Done():
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case r := <-answer:
		return r, true
	case <-timer.C:
		return run{}, false
	}
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
