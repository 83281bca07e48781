package relay

import (
	"errors"
	"strings"

	"github.com/waybillhq/waybill/broker"
	"github.com/waybillhq/waybill/store"
)

// maxUnknowns is how often an event may stay unanswered, while others of its
// topic are answered, before that counts as its own failure.
const maxUnknowns = 3

// onSent turns the answers of one Publish call into changes of the queue and
// of the keys.
func (s *scheduler) onSent(result sendResult) {
	s.sends--
	s.flying -= len(result.rows)
	accepted := false
	for i, r := range result.rows {
		if result.errs[i] == nil {
			accepted = true
			s.onAccepted(r, &result)
		}
	}
	if accepted {
		s.brokerResumes()
	}
	for i, r := range result.rows {
		r.key.flying--
		r.key.lane.busy--
		if err := result.errs[i]; err != nil && s.live(r.key) {
			s.onRefused(r, err, &result)
		}
	}
	for _, r := range result.rows {
		if k := r.key; s.live(k) && k.flying == 0 {
			s.makeReady(k)
			s.wantRead(k)
			s.release(k)
		}
	}
}

func (s *scheduler) onAccepted(r *row, result *sendResult) {
	s.sentOK++
	k := r.key
	k.unknowns = 0
	if p := s.topicPauses[k.thash]; p != nil && s.live(k) {
		p.probeOK = true
	}
	info := PublishedInfo{EventInfo: eventInfo(r), Age: r.data.Age + result.began.Add(result.took).Sub(r.read), Took: result.took}
	if k.sent(r) && s.config.Events.OutOfOrder != nil {
		s.config.Events.OutOfOrder(info)
	}
	if s.config.Events.Published != nil {
		s.config.Events.Published(info)
	}
	if !s.live(k) {
		return // another relay sends it again, and settles
	}
	s.lighten(r)
	s.write(r)
	s.changes.settle(r)
}

// onRefused handles one failed row. Rows of one key come in the order they were
// sent, so the first failure decides, and those behind it find the key held or
// go back to its queue.
func (s *scheduler) onRefused(r *row, err error, result *sendResult) {
	class, scope := broker.Classify(err)
	k := r.key
	if k.state == held {
		s.park(r)
		return
	}
	if errors.Is(err, errLeaseEnded) {
		s.putBack(r)
		return
	}
	switch class {
	case broker.ClassPredecessor:
		s.putBack(r)
	case broker.ClassUnavailable:
		switch scope {
		case broker.ScopeBroker:
			s.putBack(r)
			s.pauseBroker(err)
		case broker.ScopeTopic:
			s.pauseTopic(k, err)
			s.putBack(r)
		case broker.ScopePartition:
			s.fail(r, class, err, false)
		}
	case broker.ClassUnknown:
		if s.sentOK == result.okThen {
			// Nobody was answered since: it is the broker, not the record.
			s.putBack(r)
			s.pauseBroker(err)
			return
		}
		if k.head != r.ID {
			k.head, k.unknowns = r.ID, 0
		}
		k.unknowns++
		s.fail(r, class, err, k.unknowns >= maxUnknowns)
	case broker.ClassRetryable, broker.ClassPermanent:
		s.fail(r, class, err, true)
	}
}

// putBack returns a row to its key's queue.
func (s *scheduler) putBack(r *row) {
	k := r.key
	k.push(r)
	if s.topicPauses[k.thash] != nil {
		s.trim(k)
	}
}

// fail writes a failure down and holds the key. Only the record's own fault
// costs an attempt.
func (s *scheduler) fail(r *row, class broker.Class, err error, own bool) {
	k := r.key
	retries := r.data.Retries
	if own {
		retries++
	}
	dead := class == broker.ClassPermanent || retries >= s.config.MaxAttempts
	tries := max(retries-1, k.unknowns, 0)
	if class == broker.ClassUnavailable {
		k.unknowns++ // paces the retries of a partition without a leader
	}
	wait := backoff(s.config.BackoffMin, s.config.BackoffMax, tries)
	change := store.FailedChange{Change: r.Change, Dead: dead, Retries: retries, RetryIn: wait, Error: errorText(err)}
	if s.config.Events.Failed != nil {
		info := FailedInfo{EventInfo: eventInfo(r), Class: class.String(), Err: err, Dead: dead}
		if !dead {
			info.RetryIn = wait
		}
		s.config.Events.Failed(info)
	}
	s.write(r)
	s.changes.fail(r, change)
	if dead && s.config.topic(r.data.Event.Topic).OnDead == Continue {
		return
	}
	s.hold(k, now().Add(wait), dead)
}

func eventInfo(r *row) EventInfo {
	e := &r.data.Event
	return EventInfo{
		ID: r.ID, EventID: e.ID, Topic: e.Topic, Key: e.Key, Type: e.Type,
		Attempt: r.data.Retries + 1, Skipped: r.skip, TraceParent: e.TraceParent,
	}
}

// errorText bounds what is kept of an error, and makes it fit for a text column.
func errorText(err error) string {
	const limit = 2000
	text := err.Error()
	if len(text) > limit {
		text = text[:limit] + "..."
	}
	return strings.ReplaceAll(strings.ToValidUTF8(text, "?"), "\x00", "?")
}
