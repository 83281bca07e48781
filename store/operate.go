package store

import (
	"context"
	"errors"
	"time"
)

// Action is who does something, and why. It is written to the audit in the
// transaction of what is done.
type Action struct {
	Actor  string
	Reason string
	// Verb is what the audit calls it; empty means what the method is called.
	Verb string
}

// Named returns the verb for the audit, of a method with this name.
func (a Action) Named(method string) string {
	if a.Verb != "" {
		return a.Verb
	}
	return method
}

// ErrNoReason refuses an action without a reason.
var ErrNoReason = errors.New("a reason is required")

// Result is what became of one target of an action.
type Result struct {
	EventID string
	Outcome string // one of the Outcome constants
}

// Outcomes of an action on one event.
const (
	OutcomeRetried        = "retried"         // claimable at once
	OutcomeSkipped        = "skipped"         // a skip marker will be sent
	OutcomeQueued         = "queued"          // in the queue again
	OutcomeAlreadyPending = "already pending" // it had a queue row
	OutcomeNotDead        = "not dead"        // nothing to retry or skip
	OutcomeGone           = "gone"            // no such event
)

// Outcomes of an action on one event that a consumer keeps aside, beside
// [OutcomeRetried] and [OutcomeSkipped].
const (
	OutcomeReleased = "released" // to be handled at once, once
	// OutcomeSkippedInTurn: lower versions of its aggregate are settled before.
	OutcomeSkippedInTurn = "skipped in its turn"

	OutcomeNotHeld  = "not held"         // the group keeps no such event aside
	OutcomeBehind   = "behind another"   // an earlier event of its key decides
	OutcomeWaits    = "waits"            // for a lower version: release it, or skip it
	OutcomeConsumed = "already consumed" // another reader was faster; no longer held

	OutcomeDuplicate   = "duplicate"   // not held, because it is consumed
	OutcomeStale       = "stale"       // its aggregate is further
	OutcomeInDoubt     = "in doubt"    // a call may have been made: resolve it
	OutcomeCompensated = "compensated" // settled by what was done by hand
	OutcomeNoDoubt     = "no doubt"    // none of its calls is in doubt
	OutcomeBusy        = "busy"        // a call is being made at the moment
)

// What became of an event that was made due, beside [OutcomeStale] and
// [OutcomeSkipped].
const (
	OutcomeApplied = "applied"
	OutcomeFailed  = "failed" // and is held anew
)

// AuditEntry is one action as it was recorded.
type AuditEntry struct {
	At     time.Time
	Actor  string
	Verb   string // "dead retry", "dead skip", "requeue", "held retry", ...
	Target string // event id
	Reason string
	Before string // small JSON object, may be empty
	After  string
}

// Operator changes what a person decided to change. Each method answers for
// every id, in order, and writes one audit entry for each that it changed. An
// empty reason is refused with [ErrNoReason].
type Operator interface {
	// RetryDead makes DEAD rows PENDING and due, with retry_count 0 and skip
	// taken back. It leaves parked as it is: that is the relay's.
	RetryDead(ctx context.Context, action Action, ids []string) ([]Result, error)
	// SkipDead makes DEAD rows due with skip set.
	SkipDead(ctx context.Context, action Action, ids []string) ([]Result, error)
	// Requeue puts events into the queue again, due at once: their ids are lower
	// than what relays read, which find them as they find retries. It locks the
	// event's row first and inserts from it, so it cannot race a cleanup.
	Requeue(ctx context.Context, action Action, ids []string) ([]Result, error)
	// Audit returns the newest entries first. The table belongs to both sides, so
	// it answers on a database that has the consumer's tables alone.
	Audit(ctx context.Context, limit int) ([]AuditEntry, error)
}

// CleanupRequest says what may go.
type CleanupRequest struct {
	// Retention is the age that a receipt must have reached.
	Retention time.Duration
	// Limit bounds the events removed in one call; 0 means 1,000.
	Limit int
	// Archive copies events to the archive first.
	Archive bool
	// Below removes only smaller ids: the coverage of the checks that read
	// them. 0 means no such bound.
	Below int64
}

// Cleaner removes settled events.
type Cleaner interface {
	// Cleanup locks event rows, lowest id first, passing over locked ones, and
	// removes those events, with their receipts, whose receipt is older than the
	// retention and which have no queue row. It returns how many it removed.
	Cleanup(ctx context.Context, request CleanupRequest) (int, error)
}
