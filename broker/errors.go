package broker

import (
	"context"
	"errors"
	"fmt"
)

// Class tells the relay what a failed publish means.
type Class uint8

// The classes of a publish error.
const (
	// ClassRetryable: the record's own fault, and it may pass.
	ClassRetryable Class = iota
	// ClassPermanent: the record's own fault, for ever: too large, illegal.
	ClassPermanent
	// ClassUnavailable: not the record's fault: connection, authorization,
	// leader, quota, missing topic. Costs no attempt; the scope pauses.
	ClassUnavailable
	// ClassUnknown: no answer; the broker may have stored the record.
	ClassUnknown
	// ClassPredecessor: not tried, or refused, because an earlier record of the
	// same key failed in the same call.
	ClassPredecessor
)

func (c Class) String() string {
	return [...]string{"retryable", "permanent", "unavailable", "unknown", "predecessor"}[c]
}

// Scope is what an Unavailable error makes unusable.
type Scope uint8

// The scopes of an Unavailable error.
const (
	ScopeBroker Scope = iota
	ScopeTopic
	ScopePartition
)

func (s Scope) String() string { return [...]string{"broker", "topic", "partition"}[s] }

// ErrPredecessor answers a record that was not stored because an earlier one
// of its key failed in the same call.
var ErrPredecessor error = &Error{Class: ClassPredecessor, Err: errors.New("an earlier record of the same key failed")}

// Error is a classified publish error.
type Error struct {
	Class Class
	Scope Scope  // for ClassUnavailable
	Hint  string // what an operator can do, may be empty
	Err   error
}

func (e *Error) Error() string {
	text := e.Class.String()
	if e.Class == ClassUnavailable {
		text = fmt.Sprintf("%s %s", e.Scope, text)
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	if e.Hint != "" {
		text += " (" + e.Hint + ")"
	}
	return text
}

func (e *Error) Unwrap() error { return e.Err }

// Permanent marks err as the record's own fault that no retry will mend.
func Permanent(err error, hint string) error {
	return &Error{Class: ClassPermanent, Hint: hint, Err: err}
}

// Retryable marks err as the record's own fault that may pass.
func Retryable(err error) error { return &Error{Class: ClassRetryable, Err: err} }

// Unavailable marks err as the fault of the broker, the topic or the partition.
func Unavailable(scope Scope, err error, hint string) error {
	return &Error{Class: ClassUnavailable, Scope: scope, Hint: hint, Err: err}
}

// Unknown marks err as the lack of an answer.
func Unknown(err error) error { return &Error{Class: ClassUnknown, Err: err} }

// Classify returns the class of a publish error, and the scope of an
// Unavailable one. A context's error is Unknown; anything else that is not
// classified is Retryable.
func Classify(err error) (Class, Scope) {
	var classified *Error
	switch {
	case errors.As(err, &classified):
		return classified.Class, classified.Scope
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return ClassUnknown, ScopeBroker
	}
	return ClassRetryable, ScopeBroker
}
