package brokertest

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
)

// freeze publishes to a server that gives no answer.
func (s *suite) freeze(t *testing.T) {
	if s.Freeze == nil {
		t.Skip("the harness cannot keep the server from answering")
	}
	c := s.open(t)
	topic := s.topic(t, c, 2)
	publish(t, c.Publisher, record(topic, "a", "a0"))
	batch := []waybill.Record{record(topic, "a", "a1"), record(topic, "b", "b1"), record(topic, "a", "a2")}
	thaw := s.Freeze(t)
	ctx, cancel := context.WithTimeout(t.Context(), quiet)
	defer cancel()
	within(t, "Publish to a server that gives no answer", func() {
		// Whether a2 was sent is the adapter's affair.
		got := classes(c.Publisher.Publish(ctx, batch))
		if got[0] != "unknown" || got[1] != "unknown" || got[2] != "unknown" && got[2] != "predecessor" {
			t.Errorf("got answers %v, want unknown, unknown, and unknown or predecessor", got)
		}
	})
	thaw()
	// All three are sent again, which is what the caller does; the order of the
	// first arrivals of a key is right whichever attempts arrived.
	untilPublished(t, c.Publisher, batch...)
	sub := subscribe(t, c, groupName(), topic)
	firsts := make(map[string]bool)
	var order []string
	for len(firsts) < 4 {
		for _, d := range read(t, sub, 1) {
			if !firsts[d.Record.EventID] {
				firsts[d.Record.EventID] = true
				order = append(order, d.Record.EventID)
			}
		}
	}
	if slices.Index(order, "a1") > slices.Index(order, "a2") {
		t.Errorf("first arrivals came as %v", order)
	}
}

// outage stops the server under its clients and starts it again.
func (s *suite) outage(t *testing.T) {
	if s.Stop == nil || s.Start == nil {
		t.Skip("the harness cannot stop the server")
	}
	t.Run("ClientsRecover", s.clientsRecover)
	t.Run("WhatWasRefusedDoesNotAppearLater", s.whatWasRefusedDoesNotAppearLater)
	t.Run("OrderSurvives", s.orderSurvivesOutages)
}

func (s *suite) clientsRecover(t *testing.T) {
	c := s.open(t)
	topic, group := s.topic(t, c, 2), groupName()
	sub := subscribe(t, c, group, topic)
	publish(t, c.Publisher, record(topic, "a", "a1"), record(topic, "b", "b1"))
	before := read(t, sub, 2)
	commit(t, sub, before...)

	for round := range 2 { // a client that recovers once may not do it twice
		a, b := []string{"a2", "a3"}[round], []string{"b2", "b3"}[round]
		s.Stop(t)
		untilUnavailable(t, c.Publisher, record(topic, "a", a), record(topic, "b", b))
		pollWhileDown(t, sub)
		s.Start(t)
		untilPublished(t, c.Publisher, record(topic, "a", a), record(topic, "b", b))
		readAcross(t, sub, a, b)
	}
}

// whatWasRefusedDoesNotAppearLater looks for clients that keep records for the
// time after the outage, when the caller may have given up on them.
func (s *suite) whatWasRefusedDoesNotAppearLater(t *testing.T) {
	c := s.open(t)
	topic := s.topic(t, c, 1)
	sub := subscribe(t, c, groupName(), topic)
	publish(t, c.Publisher, record(topic, "a", "a1"))
	s.Stop(t)
	untilUnavailable(t, c.Publisher, record(topic, "b", "maybe"))
	wantClasses(t, tryPublish(t, c.Publisher, record(topic, "a", "refused")), "broker unavailable")
	s.Start(t)
	untilPublished(t, c.Publisher, record(topic, "c", "last"))
	seen := make(map[string]bool)
	for ctx := t.Context(); !seen["last"]; {
		batch, err := sub.Poll(ctx, 10, quiet)
		if err != nil {
			pause(ctx)
		}
		for _, d := range batch {
			seen[d.Record.EventID] = true
		}
	}
	if seen["refused"] {
		t.Error("a record that was answered as unavailable was stored after the outage")
	}
}

// orderSurvivesOutages publishes as a relay does, and reads, while the server
// stops and starts. Records may come twice, but the first arrivals of a key come
// in order and none is missing.
func (s *suite) orderSurvivesOutages(t *testing.T) {
	const keys, perKey, outages = 10, 60, 3
	c := s.open(t)
	topic, group := s.topic(t, c, 3), groupName()
	sub := subscribe(t, c, group, topic)
	var pending []waybill.Record
	for i := range perKey {
		for key := range keys {
			pending = append(pending, record(topic, fmt.Sprintf("key-%d", key), fmt.Sprintf("%d-%03d", key, i)))
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	// The publisher sends a share of the records between two outages, so that none
	// is over before it began.
	shares := make(chan []waybill.Record, outages+1)
	size := len(pending) / (outages + 1)
	for i := range outages + 1 {
		end := (i + 1) * size
		if i == outages {
			end = len(pending)
		}
		shares <- pending[i*size : end]
	}
	close(shares)
	begun := make(chan struct{}, outages+1)
	published := make(chan error, 1)
	go func() { published <- publishShares(ctx, c.Publisher, shares, begun) }()
	read := make(chan error, 1)
	go func() { read <- readFirsts(ctx, sub, keys*perKey) }()
	for range outages {
		select {
		case <-begun: // it is in the middle of a share
		case <-ctx.Done():
		}
		s.Stop(t)
		pause(ctx)
		s.Start(t)
	}
	for range begun { // of the last share
	}
	if err := <-published; err != nil {
		t.Errorf("publish: %v", err)
		cancel()
	}
	if err := <-read; err != nil {
		t.Errorf("read: %v", err)
	}
}

// publishShares publishes each share until all of it is confirmed. Each begins
// with a word to whoever stops the server.
func publishShares(ctx context.Context, p broker.Publisher, shares <-chan []waybill.Record, begun chan<- struct{}) error {
	defer close(begun)
	for left := range shares {
		told := false
		for len(left) > 0 {
			if err := ctx.Err(); err != nil {
				return fmt.Errorf("%d records are left: %w", len(left), err)
			}
			attempt, stop := context.WithTimeout(ctx, 2*time.Second)
			if !told {
				told = true
				begun <- struct{}{}
			}
			n := min(len(left), 50)
			errs := p.Publish(attempt, left[:n])
			stop()
			var again []waybill.Record
			for i, err := range errs {
				if err == nil {
					continue
				}
				again = append(again, left[i])
				switch class, _ := broker.Classify(err); class {
				case broker.ClassUnavailable, broker.ClassUnknown, broker.ClassPredecessor:
				default:
					return fmt.Errorf("%s: %w", left[i].EventID, err)
				}
			}
			if len(again) > 0 {
				pause(ctx)
			}
			left = append(again, left[n:]...)
		}
	}
	return nil
}

// readFirsts reads until n different records came.
func readFirsts(ctx context.Context, sub broker.Subscription, n int) error {
	next := make(map[string]int) // of each key
	for total := 0; total < n; {
		batch, err := sub.Poll(ctx, 100, quiet)
		if ctx.Err() != nil {
			return fmt.Errorf("%d of %d records came, last error: %w", total, n, err)
		}
		if err != nil {
			pause(ctx)
		}
		for _, d := range batch {
			_, text, _ := strings.Cut(d.Record.EventID, "-")
			i, err := strconv.Atoi(text)
			switch {
			case err != nil || i > next[d.Record.Key]:
				return fmt.Errorf("%s came when %d was due of its key", d.Record.EventID, next[d.Record.Key])
			case i == next[d.Record.Key]:
				next[d.Record.Key]++
				total++
			}
		}
		if err == nil && len(batch) > 0 {
			_ = tryCommit(ctx, sub, batch) // a lost commit only repeats
		}
	}
	return nil
}

// untilUnavailable publishes until the outage has been noticed by both records.
// Until then there may be no answer, but neither success nor any fault of the
// record's own.
func untilUnavailable(t testing.TB, p broker.Publisher, records ...waybill.Record) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		attempt, stop := context.WithTimeout(ctx, 2*time.Second)
		errs := p.Publish(attempt, records)
		stop()
		unavailable := 0
		for i, got := range classes(errs) {
			switch got {
			case "broker unavailable":
				unavailable++
			case "unknown", "topic unavailable", "partition unavailable":
			default:
				t.Fatalf("record %d: got answer %v in an outage", i, errs[i])
			}
		}
		if unavailable == len(records) {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("the outage is not noticed: %v", errs)
		}
	}
}

func pollWhileDown(t testing.TB, sub broker.Subscription) {
	t.Helper()
	within(t, "Poll in an outage", func() {
		if batch, err := sub.Poll(t.Context(), 10, quiet); err == nil && len(batch) > 0 {
			t.Errorf("got %d deliveries in an outage", len(batch))
		}
	})
}

// untilPublished sends the records again and again, each until it is confirmed,
// as a relay does: nothing but Unavailable, no answer, or a failed predecessor
// may stand in between.
func untilPublished(t testing.TB, p broker.Publisher, records ...waybill.Record) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for len(records) > 0 {
		attempt, stop := context.WithTimeout(ctx, 2*time.Second)
		errs := p.Publish(attempt, records)
		stop()
		var left []waybill.Record
		for i, err := range errs {
			if err == nil {
				continue
			}
			left = append(left, records[i])
			switch class, _ := broker.Classify(err); class {
			case broker.ClassUnavailable, broker.ClassUnknown, broker.ClassPredecessor:
			default:
				t.Fatalf("publish %s: %v", records[i].EventID, err)
			}
		}
		if records = left; ctx.Err() != nil {
			t.Fatalf("the publisher does not recover: %v", errs)
		}
	}
}

// readAcross polls on through errors until all ids came.
func readAcross(t testing.TB, sub broker.Subscription, want ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	missing := slices.Clone(want)
	var last error
	for len(missing) > 0 {
		batch, err := sub.Poll(ctx, 10, quiet)
		if ctx.Err() != nil {
			t.Fatalf("the subscription does not recover: %v are missing, last error %v", missing, last)
		}
		last = err
		for _, d := range batch {
			missing = slices.DeleteFunc(missing, func(id string) bool { return id == d.Record.EventID })
		}
		if err == nil && len(batch) > 0 {
			err = tryCommit(ctx, sub, batch)
		}
		if err != nil {
			pause(ctx)
		}
	}
}

func tryCommit(ctx context.Context, sub broker.Subscription, batch []broker.Delivery) error {
	var positions []broker.Position
	for _, d := range batch {
		positions = append(positions, broker.Position{Partition: partitionOf(d), Settled: d.Position})
	}
	return sub.Commit(ctx, positions)
}

func pause(ctx context.Context) {
	timer := time.NewTimer(20 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
