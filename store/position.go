package store

import (
	"context"
	"errors"
	"time"
)

// The modes of the relays of one outbox.
const (
	ModePoll = "poll" // the queue is asked what there is
	ModeCDC  = "cdc"  // the database's own log tells
)

// ErrUnknownMode refuses a mode that is none of the above.
var ErrUnknownMode = errors.New("unknown mode: it is poll or cdc")

// Position is how far a database's own log was read, in the words of that log.
type Position struct {
	Source    string // who reads it: "postgres:waybill"
	Position  string
	UpdatedAt time.Time // by the database's clock
}

// Positions keeps the places up to which logs were read, and whether they are
// read at all.
type Positions interface {
	// ListPositions returns all positions, by source.
	ListPositions(ctx context.Context) ([]Position, error)
	// SavePosition replaces a source's position under the guard's leases; where one
	// is lost it changes nothing and returns a *StaleError. An empty position
	// removes it.
	SavePosition(ctx context.Context, guard Guard, source, position string) error
	// ReadMode returns what SetMode has set, empty when that is nothing.
	ReadMode(ctx context.Context) (string, error)
	// SetMode changes the mode of all relays, which notice within a renewal, and
	// records it in the audit unless it was so already. Empty leaves the choice to
	// each relay's own configuration.
	SetMode(ctx context.Context, action Action, mode string) error
}

// CheckMode refuses what SetMode must refuse.
func CheckMode(action Action, mode string) error {
	switch {
	case action.Reason == "":
		return ErrNoReason
	case mode != "" && mode != ModePoll && mode != ModeCDC:
		return ErrUnknownMode
	}
	return nil
}

// DescribeMode is what the audit tells of a mode before or after a change.
func DescribeMode(mode string) string {
	if mode == "" {
		return ""
	}
	return `{"mode":"` + mode + `"}`
}
