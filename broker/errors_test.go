package broker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/waybillhq/waybill/broker"
)

func TestClassify(t *testing.T) {
	cause := errors.New("cause")
	for _, c := range []struct {
		name  string
		err   error
		class broker.Class
		scope broker.Scope
	}{
		{"unclassified", cause, broker.ClassRetryable, broker.ScopeBroker},
		{"retryable", broker.Retryable(cause), broker.ClassRetryable, broker.ScopeBroker},
		{"permanent", broker.Permanent(cause, "shrink it"), broker.ClassPermanent, broker.ScopeBroker},
		{"unavailable topic", broker.Unavailable(broker.ScopeTopic, cause, ""), broker.ClassUnavailable, broker.ScopeTopic},
		{"unavailable partition, wrapped", fmt.Errorf("send: %w", broker.Unavailable(broker.ScopePartition, cause, "")), broker.ClassUnavailable, broker.ScopePartition},
		{"unknown", broker.Unknown(cause), broker.ClassUnknown, broker.ScopeBroker},
		{"predecessor", broker.ErrPredecessor, broker.ClassPredecessor, broker.ScopeBroker},
		{"context", fmt.Errorf("send: %w", context.DeadlineExceeded), broker.ClassUnknown, broker.ScopeBroker},
		{"classified beats context", broker.Unavailable(broker.ScopeBroker, context.Canceled, ""), broker.ClassUnavailable, broker.ScopeBroker},
	} {
		t.Run(c.name, func(t *testing.T) {
			class, scope := broker.Classify(c.err)
			if class != c.class || scope != c.scope {
				t.Errorf("got %v of %v, want %v of %v", class, scope, c.class, c.scope)
			}
		})
	}
	err := broker.Unavailable(broker.ScopeTopic, cause, "grant access")
	for _, part := range []string{"topic unavailable", "cause", "grant access"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q does not say %q", err, part)
		}
	}
	if !errors.Is(err, cause) {
		t.Error("the cause is lost")
	}
}

func TestPlace(t *testing.T) {
	if got, want := broker.Place("orders", 3, 1042), "orders[3]@1042"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
