package natsjs

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
)

// question is a request that waits for its answer, which will never come when
// the connection is lost meanwhile. Nor does it when the server forbids the
// subject: it says so by an error of the connection that names the subject.
type question struct {
	subject string // of the request, where one is worth being recognised
	cancel  context.CancelCauseFunc
}

// ask returns a context for one or more requests. It also ends, with a cause
// that verdict finds, when the connection is lost or the server forbids the
// subject.
func (b *Broker) ask(ctx context.Context, subject string) (context.Context, func()) {
	ctx, stop := context.WithTimeout(ctx, lookupTimeout)
	ctx, cancel := context.WithCancelCause(ctx)
	q := &question{subject: subject, cancel: cancel}
	b.mu.Lock()
	b.asking[q] = struct{}{}
	b.mu.Unlock()
	return ctx, func() {
		b.mu.Lock()
		delete(b.asking, q)
		b.mu.Unlock()
		cancel(nil)
		stop()
	}
}

// verdict returns why a request under a context of ask failed.
func verdict(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); err != nil && (errors.Is(cause, errDenied) || errors.Is(cause, errDisconnected)) {
		return cause
	}
	return err
}

// hangUp ends all requests, because their answers are lost.
func (b *Broker) hangUp() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for q := range b.asking {
		q.cancel(errDisconnected)
	}
}

// refused tells those who wait that their subject is forbidden. It reports
// whether err says so of any subject that was published to.
func (b *Broker) refused(err error) bool {
	const mark = `Publish to "`
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return false
	}
	_, subject, found := strings.Cut(err.Error(), mark)
	if !found {
		return false
	}
	subject, _, _ = strings.Cut(subject, `"`)
	denied := fmt.Errorf("%w: subject %s", errDenied, subject)
	var waiting []*nats.Msg
	b.mu.Lock()
	for m := range b.sent {
		if m.Subject == subject {
			waiting = append(waiting, m)
		}
	}
	for q := range b.asking {
		if q.subject == subject {
			q.cancel(denied)
		}
	}
	b.mu.Unlock()
	for _, m := range waiting {
		b.answer(m, 0, denied)
	}
	return true
}
