package relay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
	"github.com/waybillhq/waybill/internal/fault"
)

type sendResult struct {
	rows   []*row
	errs   []error
	began  time.Time
	took   time.Duration
	okThen uint64 // scheduler.sentOK when the call began
}

const (
	sendBytes  = 8 << 20         // of data in one Publish call
	proofAge   = time.Second     // older proofs that the database takes writes are renewed
	sendLeeway = 2 * time.Second // past its time-out, a call is given up as unanswered
	probeBatch = 8               // records sent to see whether a paused broker is back
)

// startSends gives ready keys to the broker. A key has at most one outstanding
// call, and none is made unless settling its answer is possible.
func (s *scheduler) startSends(ctx context.Context) {
	at := now()
	for s.sends < s.config.Concurrency && len(s.ready) > 0 && !s.stopping && !s.database.down {
		limit := s.config.PublishBatch
		if s.brokerPause.active {
			if at.Before(s.brokerPause.until) || s.sends > 0 {
				return
			}
			limit = probeBatch
		}
		if at.Sub(s.provenAt) > proofAge {
			s.prove(ctx)
			return
		}
		rows, deadline := s.nextBatch(at, limit)
		if len(rows) == 0 {
			return
		}
		s.send(ctx, rows, deadline)
		if s.brokerPause.active {
			return
		}
	}
}

// nextBatch takes rows of ready keys in turn.
func (s *scheduler) nextBatch(at time.Time, limit int) (rows []*row, deadline time.Time) {
	bytes := 0
	for len(s.ready) > 0 && len(rows) < limit && bytes < sendBytes {
		k := s.ready[0]
		s.ready[0] = nil
		s.ready = s.ready[1:]
		k.ready = false
		if !s.sendable(k, at) {
			continue
		}
		n := min(len(k.queue), limit-len(rows))
		for _, r := range k.queue[:n] {
			r.state = inFlight
			rows = append(rows, r)
			bytes += r.bytes()
		}
		k.queue = append([]*row(nil), k.queue[n:]...)
		k.flying = n
		k.lane.busy += n
		if deadline.IsZero() || k.lane.deadline.Before(deadline) {
			deadline = k.lane.deadline
		}
	}
	if len(s.ready) == 0 {
		s.ready = nil
	}
	s.flying += len(rows)
	return rows, deadline
}

func (s *scheduler) sendable(k *key, at time.Time) bool {
	if !s.live(k) || k.state == held || k.flying > 0 || len(k.queue) == 0 || k.lane.state == leaving {
		return false
	}
	if !at.Before(k.lane.deadline) {
		k.lane.expired = true
		return false
	}
	if p := s.topicPauses[k.thash]; p != nil {
		return p.probe == k && !at.Before(p.until)
	}
	return true
}

func (s *scheduler) send(ctx context.Context, rows []*row, deadline time.Time) {
	s.sends++
	result := sendResult{rows: rows, began: now(), okThen: s.sentOK}
	s.jobs.do(func() {
		fault.Point("relay.before_publish")
		result.errs = s.publish(ctx, rows, deadline)
		fault.Point("relay.published")
		result.took = now().Sub(result.began)
		s.sendDone <- result
	})
}

// publish makes one Publish call; it runs beside the scheduler.
func (s *scheduler) publish(ctx context.Context, rows []*row, deadline time.Time) []error {
	errs := make([]error, len(rows))
	records := make([]waybill.Record, 0, len(rows))
	at := make([]int, 0, len(rows)) // place of each record in rows
	failed := make(map[*key]bool)
	for i, r := range rows {
		if failed[r.key] {
			errs[i] = broker.ErrPredecessor
			continue
		}
		event := &r.data.Event
		if r.skip {
			marker := event.SkipMarker()
			event = &marker
		}
		record, err := waybill.Encode(s.config.topic(event.Topic).Format, event)
		if err == nil && !waybill.ValidTopic(event.Topic) {
			err = fmt.Errorf("%w: illegal topic %q", waybill.ErrInvalidEvent, event.Topic)
		}
		if err != nil {
			errs[i] = broker.Permanent(err, "the event cannot be put into its wire format")
			failed[r.key] = true
			continue
		}
		records = append(records, record)
		at = append(at, i)
	}
	if len(records) == 0 {
		return errs
	}
	if !now().Before(deadline) {
		for _, i := range at {
			errs[i] = errLeaseEnded
		}
		return errs
	}
	for j, err := range s.call(ctx, records) {
		errs[at[j]] = err
		if err == nil {
			rows[at[j]].place = records[j].Place // the call has returned
		}
	}
	return errs
}

var errLeaseEnded = broker.Unavailable(broker.ScopePartition, errors.New("the lease ended before the call"), "")

// call gives a publisher that does not return in time up: its records are
// unanswered, and whatever it still sends are repetitions.
func (s *scheduler) call(ctx context.Context, records []waybill.Record) []error {
	ctx, cancel := context.WithTimeout(ctx, s.config.PublishTimeout)
	answered := make(chan []error, 1)
	go func() {
		defer cancel()
		answered <- s.relay.publisher.Publish(ctx, records)
	}()
	late := time.NewTimer(s.config.PublishTimeout + sendLeeway)
	defer late.Stop()
	var errs []error
	select {
	case errs = <-answered:
	case <-late.C:
		cancel()
		errs = make([]error, len(records))
		for i := range errs {
			errs[i] = broker.Unknown(fmt.Errorf("no answer after %v", s.config.PublishTimeout+sendLeeway))
		}
	}
	if len(errs) != len(records) {
		wrong := broker.Unknown(fmt.Errorf("the publisher answered %d of %d records", len(errs), len(records)))
		errs = make([]error, len(records))
		for i := range errs {
			errs[i] = wrong
		}
	}
	return errs
}
