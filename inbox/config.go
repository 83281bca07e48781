package inbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
	"github.com/waybillhq/waybill/store"
)

// OnDead says what becomes of a key whose event is DEAD.
type OnDead string

// The choices after a DEAD event.
const (
	// Hold keeps later events of the key BLOCKED until a person decides.
	Hold OnDead = "hold"
	// Continue goes on with the next event of the key.
	Continue OnDead = "continue"
)

// Config adjusts a [Processor]. Group and Topics are required.
type Config struct {
	// Group names the reader, and what it remembers. Groups consume the same topics
	// independently; one under a new name begins with the oldest record and makes
	// every effect again.
	Group string
	// Topics are the topics to read.
	Topics []string
	// BatchSize bounds the events of one transaction, which also takes no further
	// ones after a tenth of ReaderTTL. 0 means 500.
	BatchSize int
	// PollWait bounds one wait for records. 0 means 500 ms.
	PollWait time.Duration
	// Schedule is the pause before each further attempt of a failed event; after
	// the last one it is DEAD. nil means 1 s, 5 s, 30 s, 5 min.
	Schedule []time.Duration
	// OnDead says whether a DEAD event keeps back its key. "" means Hold.
	OnDead OnDead
	// Gate says in which versions of an aggregate events are let through. ""
	// means GateNext.
	Gate Gate
	// Baseline says which version comes first of an aggregate of which the group
	// has settled nothing. "" means BaselineOne.
	Baseline Baseline
	// Snapshot returns the version of an aggregate that the group's tables hold
	// already, 0 for none: for a group that did not begin empty. It is asked for
	// aggregates of which the group has settled nothing, while the transaction of a
	// batch is open, and must not wait for that. nil means that they began empty.
	Snapshot func(ctx context.Context, aggregate store.Aggregate) (version int64, err error)
	// OnGap is asked for versions that others wait for. nil means that they are
	// only waited for. See [GapsFromOutbox].
	OnGap GapFunc
	// GapDeadline is how long an event may wait for a lower version before
	// Events.Gap raises the alarm and health is yellow. It waits on. 0 means 5 min.
	GapDeadline time.Duration
	// Workers bounds the transactions in which events of the stream are handled at
	// once; events of one key are never in two of them. 0 means 4, and 1 where the
	// database has one writer.
	Workers int
	// HandlerTimeout bounds one run of the handler. Its context ends then, and
	// what it wrote is rolled back, even when it pays no heed. 0 means 30 s.
	HandlerTimeout time.Duration
	// Grace bounds the time between the end of Run's context and its return. 0
	// means 20 s.
	Grace time.Duration
	// ReaderTTL is how long a partition stays reserved for a process that is not
	// heard of. 0 means 10 s. Where the database has one writer, it must be
	// longer than the handler takes for one event: the reservation cannot be
	// renewed meanwhile.
	ReaderTTL time.Duration
	// CrashTries is how often an event may take the process down with it before
	// it is held DEAD. 0 means 3.
	CrashTries int
	// RetryWorkers bounds the keys whose held events are handled at once. 0
	// means 4.
	RetryWorkers int
	// SweepEvery is the pause between two looks for held events that have
	// nothing to wait for any more. 0 means 1 s.
	SweepEvery time.Duration
	// PauseAfter is how many different keys must fail, with no success between
	// them, for the processor to pause. 0 means 10; less than 0 means never.
	PauseAfter int
	// PauseMin and PauseMax bound the time between two trials of a paused
	// processor. 0 means 1 s and 1 min.
	PauseMin, PauseMax time.Duration
	// CountEvery is the pause between two reports of what is held. 0 means 10 s.
	CountEvery time.Duration
	// Schemas says by event type which versions of the data the handler
	// understands. Data of a type that is not listed reaches it as it is.
	Schemas map[string]Schema
	// Validator, if set, judges the data of each event as it came, and what
	// upcasts made of it. Data that does not fit is held DEAD.
	Validator waybill.Validator
	// Prefilter, if set, tells duplicates from afar.
	Prefilter Prefilter
	// Retention is the age at which a cleanup may forget what the group consumed:
	// what the cleanup is configured with. An event that lies behind what was
	// forgotten is held DEAD for a person, unless its version proves it new or
	// stale. Run refuses a retention that is shorter than the broker's and ReplayAge
	// together. At least 10 minutes; 0 means for ever, or not known, and nothing is
	// checked.
	Retention time.Duration
	// BrokerRetention is how long the broker keeps records. 0 means that the
	// broker is asked, if it can tell.
	BrokerRetention time.Duration
	// ReplayAge is how old an event may be that somebody sends again. 0 means 15
	// days.
	ReplayAge time.Duration
	// DeadLetters, if set, gets a copy of each event that is DEAD, in the topic of
	// that name with the suffix [DeadLetterSuffix]. The held event is the truth: a
	// copy is sent until it is confirmed, and one that the broker refuses for good
	// is given up. A topic that is missing is made where the publisher is a
	// [broker.TopicAdmin] too.
	DeadLetters broker.Publisher
	// Effects are what other systems are asked to do for an event, one after the
	// other, before the handler runs.
	Effects []Effect
	// Events are told what happens.
	Events Events
	// Logger gets what people should know. nil means slog.Default.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	set := func(d *time.Duration, value time.Duration) {
		if *d == 0 {
			*d = value
		}
	}
	count := func(n *int, value int) {
		if *n == 0 {
			*n = value
		}
	}
	c.Topics = slices.Clone(c.Topics)
	count(&c.BatchSize, 500)
	count(&c.CrashTries, 3)
	count(&c.RetryWorkers, 4)
	count(&c.Workers, 4)
	count(&c.PauseAfter, 10)
	set(&c.PollWait, 500*time.Millisecond)
	set(&c.HandlerTimeout, 30*time.Second)
	set(&c.Grace, 20*time.Second)
	set(&c.ReaderTTL, 10*time.Second)
	set(&c.SweepEvery, time.Second)
	set(&c.PauseMin, time.Second)
	set(&c.PauseMax, time.Minute)
	set(&c.CountEvery, 10*time.Second)
	set(&c.ReplayAge, 15*24*time.Hour)
	set(&c.GapDeadline, 5*time.Minute)
	if c.Schedule == nil {
		c.Schedule = []time.Duration{time.Second, 5 * time.Second, 30 * time.Second, 5 * time.Minute}
	}
	c.Schedule = slices.Clone(c.Schedule)
	if c.OnDead == "" {
		c.OnDead = Hold
	}
	if c.Gate == "" {
		c.Gate = GateNext
	}
	if c.Baseline == "" {
		c.Baseline = BaselineOne
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	c.Logger = c.Logger.With("group", c.Group)
	return c
}

func (c *Config) check() error {
	fail := func(format string, args ...any) error {
		return &waybill.Error{Op: "configure consumer", Key: c.Group, Err: fmt.Errorf(format, args...)}
	}
	if c.Group == "" {
		return fail("group is empty")
	}
	if len(c.Group) > waybill.MaxKeyLen {
		return fail("group has %d bytes, limit %d", len(c.Group), waybill.MaxKeyLen)
	}
	if len(c.Topics) == 0 {
		return fail("no topics")
	}
	for _, topic := range c.Topics {
		if !waybill.ValidTopic(topic) {
			return fail("topic %q: use letters, digits, '.', '_' and '-' only", topic)
		}
	}
	if c.OnDead != Hold && c.OnDead != Continue {
		return fail("OnDead is %q: use %q or %q", c.OnDead, Hold, Continue)
	}
	if c.Retention < 0 || c.Retention > 0 && c.Retention <= recent || c.BrokerRetention < 0 || c.ReplayAge < 0 {
		return fail("Retention is %v, BrokerRetention %v, ReplayAge %v", c.Retention, c.BrokerRetention, c.ReplayAge)
	}
	if err := c.checkEffects(); err != nil {
		return fail("%w", err)
	}
	for name, schema := range c.Schemas {
		if err := schema.check(); err != nil {
			return fail("schema of %s: %w", name, err)
		}
	}
	if c.Gate != GateNext && c.Gate != GateLatest && c.Gate != GateNone {
		return fail("Gate is %q: use %q, %q or %q", c.Gate, GateNext, GateLatest, GateNone)
	}
	if c.Baseline != BaselineOne && c.Baseline != BaselineFirstSeen {
		return fail("Baseline is %q: use %q or %q", c.Baseline, BaselineOne, BaselineFirstSeen)
	}
	for name, n := range map[string]int{
		"BatchSize": c.BatchSize, "CrashTries": c.CrashTries, "RetryWorkers": c.RetryWorkers, "Workers": c.Workers,
	} {
		if n < 1 {
			return fail("%s is %d", name, n)
		}
	}
	for name, d := range map[string]time.Duration{
		"PollWait": c.PollWait, "HandlerTimeout": c.HandlerTimeout, "Grace": c.Grace, "ReaderTTL": c.ReaderTTL,
		"SweepEvery": c.SweepEvery, "PauseMin": c.PauseMin, "PauseMax": c.PauseMax, "CountEvery": c.CountEvery, "GapDeadline": c.GapDeadline,
	} {
		if d <= 0 {
			return fail("%s is %v", name, d)
		}
	}
	if slices.ContainsFunc(c.Schedule, func(d time.Duration) bool { return d < 0 }) {
		return fail("Schedule has a negative pause")
	}
	return nil
}

// longest is the age from which a transaction takes no further event: others
// wait for its locks, and where the database has one writer for all of it, even
// the renewal of this process's own leases.
func (c *Config) longest() time.Duration { return c.ReaderTTL / 10 }

// window is how many records are read at once.
func (c *Config) window() int { return c.BatchSize * c.Workers }

var errNoHandler = errors.New("store, subscriber, handler and config are all required")
