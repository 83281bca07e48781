package waybill

import (
	"errors"
	"strings"
)

var (
	// ErrInvalidEvent is wrapped by every refusal of an event's content.
	ErrInvalidEvent = errors.New("invalid event")
	// ErrDuplicateEvent says that an event of this ID is in the outbox already.
	// The caller's transaction remains usable.
	ErrDuplicateEvent = errors.New("duplicate event id")
	// ErrUndecodable is wrapped by every refusal of a wire message.
	ErrUndecodable = errors.New("undecodable message")
)

// Error is how the packages of this module report a failure: "op key: cause".
type Error struct {
	Op   string // what was attempted: "append"
	Key  string // what it was attempted on, may be empty: an event id, a topic, a table
	Hint string // what an operator can do about it, may be empty
	Err  error  // the cause
}

// Error returns "op key: cause (hint)", leaving out what is empty.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Op)
	if e.Key != "" {
		b.WriteString(" ")
		b.WriteString(e.Key)
	}
	if e.Err != nil {
		b.WriteString(": ")
		b.WriteString(e.Err.Error())
	}
	if e.Hint != "" {
		b.WriteString(" (")
		b.WriteString(e.Hint)
		b.WriteString(")")
	}
	return b.String()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }
