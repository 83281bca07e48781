package reconcile

import "time"

// Class is a verdict's name.
type Class string

// The classes, in the order in which reports list them. InFlight is no
// difference, and Unverified says that none could be ruled out.
const (
	MissingEvent  Class = "MISSING_EVENT"
	OrphanEvent   Class = "ORPHAN_EVENT"
	MismatchWrite Class = "MISMATCH_WRITE"
	MismatchRead  Class = "MISMATCH_READ"
	InFlight      Class = "IN_FLIGHT"
	Unverified    Class = "UNVERIFIED"
)

// Classes lists all classes in order.
var Classes = []Class{MissingEvent, OrphanEvent, MismatchWrite, MismatchRead, InFlight, Unverified}

// Difference reports whether the class counts as a difference.
func (c Class) Difference() bool { return c != InFlight && c != Unverified && c != "" }

// Side tells which two arms a verdict is about.
type Side string

// The sides.
const (
	WriteSide Side = "write" // business row against log
	ReadSide  Side = "read"  // read model against log
)

// Code names a cause; the codes are stable.
type Code string

// The causes.
const (
	// of MISSING_EVENT
	NeverWritten Code = "never_written" // the log has no event of the row's version
	NeverQueued  Code = "never_queued"  // it is written, and nothing will ever send it
	Stuck        Code = "stuck"         // waiting longer than allowed
	Dead         Code = "dead"          // given up on
	Skipped      Code = "skipped"       // skipped by somebody
	RowGone      Code = "row_gone"      // it was there and was removed
	Gap          Code = "gap"           // an earlier version has no sent event
	UnknownState Code = "unknown_state" // the log's state word is not in the check
	// of ORPHAN_EVENT
	NoRow      Code = "no_row"
	AheadOfRow Code = "ahead_of_row"
	// of both mismatches
	Content Code = "content"
	// of MISMATCH_WRITE
	DeletedInLog Code = "deleted_in_log" // the latest event is a delete, and the row is there
	// of MISMATCH_READ
	Absent      Code = "absent"
	Behind      Code = "behind"
	Ahead       Code = "ahead"
	Extra       Code = "extra"
	HeldDead    Code = "held_dead" // the consumer gave up on the event
	Blocked     Code = "blocked"   // it waits behind one that the consumer gave up on
	SetBack     Code = "set_back"  // the consumer applied the event, and its effect is not there
	NotRemoved  Code = "not_removed"
	AgainstRow  Code = "against_row" // there is no log: judged against the business row
	HeldRetry   Code = "held_retry"
	HeldWaiting Code = "held_waiting"
	HeldBlocked Code = "held_blocked" // behind one that is in retry or waiting
	// of IN_FLIGHT
	Pending Code = "pending" // the relay has it
	Sent    Code = "sent"    // the broker or the consumer has it
	// of UNVERIFIED
	LogExpired Code = "log_expired"
	NotRead    Code = "not_read"
	NoSuchPast Code = "no_such_version" // the log has no event of the read model's version
)

// Cause is one reason of a verdict.
type Cause struct {
	Code Code   `json:"code"`
	Text string `json:"text"`
}

// Difference is one column of which two arms hold different values.
type Difference struct {
	Column string `json:"column"`
	Row    *Value `json:"row,omitempty"`
	Event  *Value `json:"event,omitempty"`
	Read   *Value `json:"read_model,omitempty"`
}

// Verdict is what is to be said of one side of a key.
type Verdict struct {
	Class       Class
	Side        Side
	Causes      []Cause
	Missing     int64 // of MISSING_EVENT: how many events
	Differences []Difference
	Since       time.Time // it cannot have begun earlier, by what the arms say; zero: they do not say
}

// State is what has become of an event on its way to the broker.
type State string

// The states. A log's own words are translated into these.
const (
	StateSent     State = "SENT"
	StatePending  State = "PENDING"
	StateDead     State = "DEAD"
	StateSkipped  State = "SKIPPED"
	StateUnqueued State = "UNQUEUED"
	StateOther    State = "OTHER" // a word that the check does not name
)

// Row is a row of the business table or of the read model.
type Row struct {
	Version   int64
	UpdatedAt time.Time // zero: unknown
	EventID   string    // of a read model: the event applied last, if it says
	Deleted   bool      // marked as deleted
	Values    []Value   // in the order of the compared columns
}

// Event is an event of the log.
type Event struct {
	ID        string
	Version   int64
	State     State
	Word      string    // the log's own word for the state
	Delete    bool      // it says that the row is gone
	CreatedAt time.Time // zero: unknown
	SentAt    time.Time // zero: unknown, then CreatedAt counts
	Values    []Value   // nil where too old to matter
}

// since returns when the event set out towards the consumer.
func (e *Event) since() time.Time {
	if !e.SentAt.IsZero() {
		return e.SentAt
	}
	return e.CreatedAt
}

// Fate is what a consumer says of an event.
type Fate string

// The fates: settled, or held.
const (
	FateApplied Fate = "APPLIED"
	FateStale   Fate = "STALE"
	FateSkipped Fate = "SKIPPED"
	FateRetry   Fate = "RETRY"
	FateWaiting Fate = "WAITING"
	FateBlocked Fate = "BLOCKED"
	FateDead    Fate = "DEAD"
)

// Consumed is what a consumer knows of an event.
type Consumed struct {
	Fate       Fate
	Since      time.Time // when it was held
	BehindDead bool      // of BLOCKED: an event before it is DEAD
	Error      string    // of a held event: why
}

// Facts is what was read of one key.
type Facts struct {
	Key   Key
	Write *Row    // nil: none
	Log   []Event // by version, in the snapshot that Write was read in
	Read  *Row    // read later
	// Again is the log read after Read; nil where it was not needed. What was
	// sent between the two is no finding.
	Again []Event
	// Consumer has the fate of the events that the consumer knows.
	Consumer map[string]Consumed
	// BehindSince is when an earlier run first saw the read model behind; zero
	// for never. It counts where the first event not applied is not readable.
	BehindSince time.Time
	// Head is the version that the outbox recorded beside the events, so that it
	// outlives them; nil where there is none.
	Head *int64
}

// Rules is what a check lays down about judging.
type Rules struct {
	HasWrite, HasLog, HasRead bool
	Columns                   []Comparison
	EveryVersion              bool          // gaps are findings too
	FirstVersion              int64         // where versions start, for gaps
	Delta                     bool          // events hold changes: no content to compare
	Exemption                 time.Duration // how long an event may wait for the relay
	Deadline                  time.Duration // how long a consumer may take
	LogSince                  time.Time     // older events may have been removed; zero: never
	Now                       time.Time
}

// Comparison is a compared column and the arms that have it.
type Comparison struct {
	Name             string
	Write, Log, Read bool
}
