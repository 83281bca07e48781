package inbox

import (
	"errors"
	"fmt"
	"time"
)

var (
	// ErrHandlerTimeout is wrapped by the failure of a handler that ran over its
	// time.
	ErrHandlerTimeout = errors.New("the handler ran over its time")
	// ErrHandlerPanic is wrapped by the failure of a handler that panicked.
	ErrHandlerPanic = errors.New("the handler panicked")
	// ErrHandlerCrash is wrapped by the failure of an event whose handling ended
	// the process, time after time.
	ErrHandlerCrash = errors.New("the process ended while handling the event")
)

type steering uint8

const (
	steerRetry steering = iota + 1
	steerDead
	steerPark
)

// steered is an error that carries the handler's wish.
type steered struct {
	to    steering
	after time.Duration
	err   error
}

func (s *steered) Error() string {
	switch {
	case s.err == nil && s.to == steerRetry:
		return fmt.Sprintf("retry after %v", s.after)
	case s.err == nil:
		return "no reason given"
	}
	return s.err.Error()
}

func (s *steered) Unwrap() error { return s.err }

// RetryAfter returns an error with which a handler asks for its event again
// after d, whatever the schedule says. It is an attempt like any other: after
// the last of the schedule the event is DEAD. err may be nil.
func RetryAfter(d time.Duration, err error) error {
	return &steered{to: steerRetry, after: max(d, 0), err: err}
}

// Dead returns an error with which a handler says that its event can never be
// applied. It is held DEAD at once.
func Dead(err error) error { return &steered{to: steerDead, err: err} }

// Park returns an error with which a handler asks for a person: whether the
// event was applied is in doubt. It is held DEAD at once, its error beginning
// with "parked:", and no attempt is counted.
func Park(err error) error { return &steered{to: steerPark, err: err} }

// parkedText begins the error of an event that waits for a person.
const parkedText = "parked: "

// failure is why an event was not applied, and what becomes of it.
type failure struct {
	err   error
	stack string
	// final leaves no further attempt.
	final bool
	// parked counts no attempt.
	parked bool
	// after overrides the schedule when hasAfter is set.
	after    time.Duration
	hasAfter bool
}

func failureOf(err error, stack string) *failure {
	f := &failure{err: err, stack: stack}
	var s *steered
	if errors.As(err, &s) {
		switch s.to {
		case steerRetry:
			f.after, f.hasAfter = s.after, true
		case steerDead:
			f.final = true
		case steerPark:
			f.final, f.parked = true, true
			f.err = fmt.Errorf(parkedText+"%w", err)
		}
	}
	return f
}

// maxErrorText bounds what is stored of an error, in bytes.
const maxErrorText = 4 << 10

func (f *failure) text() string { return clip(f.err.Error(), maxErrorText) }
