package reconcile

import (
	"context"
	"encoding/json"
	"errors"
	"time"
)

// Results keep what runs found, so that the next run and people know of it. A
// check has one run at a time: who runs it holds its [Lease].
//
// Calls are safe for use by several goroutines and processes, and keep nothing
// that they were given. Times are those of the results' database.
type Results interface {
	// Acquire takes the lease of a check, if nobody holds it; else the error is
	// ErrRunning. A lease that is not renewed ends after ttl, by the database's clock.
	Acquire(ctx context.Context, check, owner string, ttl time.Duration) (Lease, error)
	// Renew prolongs a lease by its ttl from now; the error is ErrLeaseLost where
	// it has ended.
	Renew(ctx context.Context, lease Lease) error
	// Release ends a lease. One that has ended already is no error.
	Release(ctx context.Context, lease Lease) error
	// Begin records that a run starts, under its ID, and returns what earlier ones
	// left. Runs of the check that had not ended are marked as interrupted, but for
	// a weekly one, which waits to be continued.
	Begin(ctx context.Context, lease Lease, run *RunRecord) (*Past, error)
	// Record writes an outcome in one transaction, if the lease still lives; else
	// nothing is written and the error is ErrLeaseLost.
	Record(ctx context.Context, lease Lease, outcome *Outcome) error
}

// Findings are the differences on record, for people.
type Findings interface {
	// ListFindings returns findings, the newest first.
	ListFindings(ctx context.Context, filter FindingFilter) ([]FindingRecord, error)
	// FindFinding returns one; the error is ErrNoFinding where there is none.
	FindFinding(ctx context.Context, id string) (*FindingRecord, error)
	// Decide changes the state of a finding that is not resolved.
	Decide(ctx context.Context, id string, decision Decision) (*FindingRecord, error)
}

// History is what happened, for people, metrics and alerts.
type History interface {
	// Runs returns the runs of a check, or of all for "", the newest first.
	Runs(ctx context.Context, check string, limit int) ([]RunRecord, error)
	// Standing says how a check stands now.
	Standing(ctx context.Context, check string) (*Standing, error)
}

var (
	// ErrRunning says that another run of the check is not over.
	ErrRunning = errors.New("the check is being run")
	// ErrLeaseLost says that a run was taken for dead. What it has not recorded is
	// lost, and another one may be at work.
	ErrLeaseLost = errors.New("the run has lost its lease")
	// ErrNoFinding says that there is no such finding.
	ErrNoFinding = errors.New("no such finding")
	// ErrResolved says that nothing is left to decide.
	ErrResolved = errors.New("the finding is resolved")
)

// Lease is the right to run a check.
type Lease struct {
	Check string
	Owner string // of this lease alone
	Fence int64  // greater than that of every earlier lease of the check
	TTL   time.Duration
}

// RunState is how far a run has come.
type RunState string

// The states of a run. A weekly one is RUNNING until its last key, over
// interruptions.
const (
	RunRunning     RunState = "RUNNING"
	RunDone        RunState = "DONE"
	RunFailed      RunState = "FAILED"      // it says why
	RunInterrupted RunState = "INTERRUPTED" // its process ended
)

// RunRecord is a run on record.
type RunRecord struct {
	ID          string     `json:"id"`
	Check       string     `json:"check"`
	Mode        Mode       `json:"mode"`
	State       RunState   `json:"state"`
	Owner       string     `json:"owner"`
	Definition  string     `json:"definition"`      // a hash of what the check compares
	Since       *time.Time `json:"since,omitempty"` // of a window
	StartedAt   time.Time  `json:"started_at"`
	FinishedAt  *time.Time `json:"finished_at,omitempty"`
	Keys        int64      `json:"keys"`
	Differences int        `json:"differences"`
	InFlight    int        `json:"in_flight"`
	Unverified  int        `json:"unverified"`
	Healed      int        `json:"healed"`
	Complete    bool       `json:"complete"` // all of it could be read
	Error       string     `json:"error,omitempty"`
	// Counts are by class.
	Counts map[Class]int `json:"counts"`
}

// RangeRecord is a range of a run: compared, or not, and then why.
type RangeRecord struct {
	Seq      int
	From, To string // stored keys; empty for open ends
	Keys     int64
	Verified bool
	Error    string
	// Report, of a weekly run, is the stretch's own, as JSON.
	Report json.RawMessage
}

// FindingState is what has become of a finding.
type FindingState string

// The states of a finding.
const (
	FindingOpen     FindingState = "OPEN"
	FindingResolved FindingState = "RESOLVED" // a later run looked, and saw it no more
	FindingIgnored  FindingState = "IGNORED"  // until a time; somebody said why
	FindingAwaiting FindingState = "AWAITING_VERDICT"
)

// FindingRecord is a finding on record. One of the same check, class and key
// that comes back after it was resolved is the same record, open again.
type FindingRecord struct {
	ID         string          `json:"id"`
	Check      string          `json:"check"`
	Class      Class           `json:"class"`
	Side       Side            `json:"side"`
	Key        string          `json:"key"`
	State      FindingState    `json:"state"`
	Detail     string          `json:"detail"`
	Causes     []Cause         `json:"causes"`
	Missing    int64           `json:"missing,omitempty"` // of MISSING_EVENT: how many events
	Seen       int64           `json:"seen"`              // by how many runs since it opened
	FirstSeen  time.Time       `json:"first_seen"`
	LastSeen   time.Time       `json:"last_seen"`
	ResolvedAt *time.Time      `json:"resolved_at,omitempty"`
	FirstRun   string          `json:"first_run"`
	LastRun    string          `json:"last_run"`
	Until      *time.Time      `json:"ignored_until,omitempty"`
	By         string          `json:"decided_by,omitempty"`
	Reason     string          `json:"reason,omitempty"`
	Sample     json.RawMessage `json:"finding,omitempty"` // as the last report had it
	StoredKey  string          `json:"-"`
}

// FindingFilter says which findings are meant; zero fields mean all.
type FindingFilter struct {
	Check  string
	Class  Class
	Key    string // as reports show it
	States []FindingState
	Limit  int // 0: all
}

// Decision is what a person says of a finding.
type Decision struct {
	State  FindingState // open, ignored or awaiting
	Until  time.Time    // of ignored: opens by itself then. Zero: never
	By     string
	Reason string
}

// CoverageRecord says that every change before Until was compared after it was
// made: of a window those since From, else all of them.
type CoverageRecord struct {
	Kind       Mode       `json:"kind"` // window or full
	Definition string     `json:"definition"`
	From       *time.Time `json:"from,omitempty"`
	Until      time.Time  `json:"until"`
}

// BehindRecord is a read model that lacks sent events.
type BehindRecord struct {
	StoredKey   string
	Since       time.Time
	ReadVersion int64
	SentVersion int64
}

// Past is what earlier runs of a check left.
type Past struct {
	Now      time.Time
	Open     []FindingRecord // all that are not resolved
	Behind   []BehindRecord
	Coverage []CoverageRecord
	// Continued, for a weekly run, is the one to go on with, and Ranges what it has
	// compared; nil where there is none with this definition.
	Continued *RunRecord
	Ranges    []RangeRecord
}

// Outcome is what a run, or a stretch of it, adds. All of it is recorded, or
// nothing.
type Outcome struct {
	Run      RunRecord // as it stands now
	Report   json.RawMessage
	Ranges   []RangeRecord
	Found    []FindingRecord // seen now
	Resolved []string        // ids: looked for now, and not seen
	Behind   []BehindRecord  // new ones
	Caught   []string        // stored keys that are behind no longer
	Coverage []CoverageRecord
}

// Standing is how a check stands.
type Standing struct {
	Check     string           `json:"check"`
	Now       time.Time        `json:"now"`
	Running   string           `json:"running,omitempty"` // who runs it
	LastRun   *RunRecord       `json:"last_run,omitempty"`
	LastDone  *RunRecord       `json:"last_done,omitempty"`
	LastSweep *RunRecord       `json:"last_sweep,omitempty"` // full or weekly, done
	Sweeping  *RunRecord       `json:"sweeping,omitempty"`   // weekly, not over
	FirstRun  *time.Time       `json:"first_run,omitempty"`
	Coverage  []CoverageRecord `json:"coverage"`
	Open      map[Class]int    `json:"open"`
	// OpenSince is when the oldest open finding was first seen, and NewestOpen the
	// newest, by class.
	OpenSince  map[Class]time.Time `json:"open_since"`
	NewestOpen map[Class]time.Time `json:"newest_open"`
	Ignored    int                 `json:"ignored"`
	Awaiting   int                 `json:"awaiting_verdict"`
}
