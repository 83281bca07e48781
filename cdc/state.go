package cdc

import (
	"context"
	"errors"
	"fmt"
)

// State names what a feed is doing, or what keeps it from doing it. In each of
// them events are delivered: from the queue, where the log does not help.
type State string

// The states of a feed that is well.
const (
	Off        State = "OFF"         // the mode is polling
	Standby    State = "STANDBY"     // another process holds the lanes
	Opening    State = "OPENING"     // the stream is being set up
	CatchingUp State = "CATCHING_UP" // reading the queue until nothing is left behind
	Streaming  State = "STREAMING"   // following the log
	Waiting    State = "WAITING"     // another process reads the log
)

// The states in which the position is lost. The feed begins anew by itself.
const (
	LostSlot        State = "LOST_SLOT"        // the replication slot is gone
	WALRemoved      State = "WAL_REMOVED"      // the slot is there, what it needs was removed
	BinlogPurged    State = "BINLOG_PURGED"    // the binlog at the position was purged
	PositionUnknown State = "POSITION_UNKNOWN" // the log never had this position: restored, reset, another server
)

// The states that need somebody. The feed tries again by itself.
const (
	Misconfigured    State = "MISCONFIGURED"      // a setting or privilege of the server is missing
	Blocked          State = "BLOCKED"            // somebody's transaction or lock is in the way
	ServerIDConflict State = "SERVER_ID_CONFLICT" // another reader uses the same server id
	Unreachable      State = "UNREACHABLE"        // no connection, or any other error
)

// Lost reports whether the state says that the position is not there any more.
func (s State) Lost() bool {
	switch s {
	case LostSlot, WALRemoved, BinlogPurged, PositionUnknown:
		return true
	}
	return false
}

// Error is a classified error of a source or a stream.
type Error struct {
	State State
	Hint  string // what an operator can do, may be empty
	Err   error
}

func (e *Error) Error() string {
	text := fmt.Sprintf("%s: %v", e.State, e.Err)
	if e.Hint != "" {
		text += " (" + e.Hint + ")"
	}
	return text
}

func (e *Error) Unwrap() error { return e.Err }

// Lost marks err as the loss of the position, in a state for which
// [State.Lost] holds.
func Lost(state State, err error, hint string) error {
	return &Error{State: state, Hint: hint, Err: err}
}

// Busy marks err as the presence of another reader.
func Busy(err error) error { return &Error{State: Waiting, Err: err} }

// Refused marks err as something that somebody has to change first: the state is
// one of Misconfigured, Blocked, ServerIDConflict and Unreachable.
func Refused(state State, err error, hint string) error {
	return &Error{State: state, Hint: hint, Err: err}
}

// StateOf returns the state that an error puts a feed in: Unreachable for what
// is not classified, Opening for the end of a context.
func StateOf(err error) State {
	var classified *Error
	switch {
	case errors.As(err, &classified):
		return classified.State
	case errors.Is(err, context.Canceled):
		return Opening
	}
	return Unreachable
}
