package demo

import (
	"context"
	"errors"
)

// task is a goroutine with an end.
type task struct {
	cancel context.CancelFunc
	done   chan struct{}
	err    error
}

// begin runs do until it returns or the task is stopped. Its failure, unless
// it was stopped, also ends everything else through fail.
func begin(ctx context.Context, fail context.CancelCauseFunc, do func(context.Context) error) *task {
	ctx, cancel := context.WithCancel(ctx)
	t := &task{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(t.done)
		if t.err = do(ctx); t.err != nil && !errors.Is(t.err, context.Canceled) {
			fail(t.err)
		}
	}()
	return t
}

// wait returns when the task has ended by itself, or with the cause when ctx ends.
func (t *task) wait(ctx context.Context) error {
	select {
	case <-t.done:
		return t.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// stop ends the task and returns when it has ended. It may be called again.
func (t *task) stop() error {
	t.cancel()
	<-t.done
	if errors.Is(t.err, context.Canceled) {
		return nil
	}
	return t.err
}
