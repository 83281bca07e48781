package natsjs

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
)

// A server that forbids a subject does not answer the message: it says so by an
// error of the connection, which names the subject. Whoever waits for an answer
// to that subject is told here.

// question is a request that waits for its answer.
type question struct {
	subject string
	cancel  context.CancelCauseFunc
}

// ask returns a context that also ends, with the cause errDenied, when the
// server forbids the subject.
func (b *Broker) ask(ctx context.Context, subject string) (context.Context, func()) {
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
		b.answer(m, denied)
	}
	return true
}
