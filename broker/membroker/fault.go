package membroker

import (
	"context"
	"errors"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
)

// Verdict is what becomes of one record. The zero value stores and confirms it.
type Verdict struct {
	// Err refuses the record with this answer.
	Err error
	// Silent leaves the record without an answer: Publish waits until its
	// context ends, after it has dealt with the other records.
	Silent bool
	// Stored keeps the record although Err or Silent is set, as when only the
	// answer is lost.
	Stored bool
}

// Fault decides on one record. It may wait on ctx. It is not asked about records
// that already have a verdict, by [Broker.Refuse], [Broker.Lose] or
// [Broker.Mute], or that follow a failed one of their key.
type Fault func(ctx context.Context, record waybill.Record) Verdict

// Gate is asked at the start of each Publish and may hold it up. An error
// becomes the answer to every record of the call.
type Gate func(ctx context.Context, records []waybill.Record) error

// Always is the number of times of a fault that never ends.
const Always = -1

var (
	errLost   = errors.New("the answer was lost")
	errSilent = errors.New("no answer")
)

// faults is all that a test has set. Guarded by server.mu.
type faults struct {
	outage         bool
	denied         map[string]bool
	planned        map[string]*plan // by event id
	custom         Fault
	gate           Gate
	delay          time.Duration
	maxRecordBytes int
}

type plan struct {
	verdict Verdict
	left    int // negative: for ever
}

func (f *faults) verdict(record *waybill.Record) Verdict {
	p := f.planned[record.EventID]
	if p == nil || p.left == 0 {
		return Verdict{}
	}
	if p.left > 0 {
		p.left--
	}
	return p.verdict
}

// Outage makes the broker unreachable, for publishers and consumers, or
// reachable again. Nothing that is stored gets lost.
func (b *Broker) Outage(down bool) {
	b.set(func(f *faults) { f.outage = down })
}

// DenyTopic makes Publish to one topic fail as by a missing right.
func (b *Broker) DenyTopic(topic string, denied bool) {
	b.set(func(f *faults) {
		if f.denied == nil {
			f.denied = make(map[string]bool)
		}
		f.denied[topic] = denied
	})
}

// Refuse answers an event with err, without storing it, for a number of times.
func (b *Broker) Refuse(eventID string, times int, err error) {
	b.plan(eventID, times, Verdict{Err: err})
}

// Lose stores an event and answers Unknown, for a number of times.
func (b *Broker) Lose(eventID string, times int) {
	b.plan(eventID, times, Verdict{Err: broker.Unknown(errLost), Stored: true})
}

// Mute neither stores nor answers an event, for a number of times: Publish
// waits for its context to end.
func (b *Broker) Mute(eventID string, times int) {
	b.plan(eventID, times, Verdict{Silent: true})
}

// Delay makes each Publish wait before it stores anything.
func (b *Broker) Delay(d time.Duration) {
	b.set(func(f *faults) { f.delay = d })
}

// MaxRecordBytes sets the limit above which a record is refused for ever.
func (b *Broker) MaxRecordBytes(n int) {
	b.set(func(f *faults) { f.maxRecordBytes = n })
}

// SetFault installs a function that decides on each record; nil removes it.
func (b *Broker) SetFault(fault Fault) {
	b.set(func(f *faults) { f.custom = fault })
}

// SetGate installs a function that is asked at the start of each Publish; nil
// removes it.
func (b *Broker) SetGate(gate Gate) {
	b.set(func(f *faults) { f.gate = gate })
}

// ExpireSessions makes all present members of a group lose their partitions,
// as when their heartbeats stay out. Each joins again at its next Poll.
func (b *Broker) ExpireSessions(groupName string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if g := b.groups[groupName]; g != nil {
		for len(g.members) > 0 {
			g.leave(g.members[0])
		}
	}
	b.notify()
}

func (b *Broker) plan(eventID string, times int, verdict Verdict) {
	b.set(func(f *faults) {
		if f.planned == nil {
			f.planned = make(map[string]*plan)
		}
		f.planned[eventID] = &plan{verdict: verdict, left: times}
	})
}

func (b *Broker) set(change func(*faults)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change(&b.faults)
	b.notify()
}
