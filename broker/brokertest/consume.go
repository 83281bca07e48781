package brokertest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/waybillhq/waybill/broker"
)

func (s *suite) consume(t *testing.T) {
	t.Run("PollWaitsForRecords", s.pollWaitsForRecords)
	t.Run("PollEndsWithItsContext", s.pollEndsWithItsContext)
	t.Run("PollKeepsItsLimit", s.pollKeepsItsLimit)
	t.Run("WhatWasNotCommittedComesAgain", s.whatWasNotCommittedComesAgain)
	t.Run("ALowerCommitIsIgnored", s.aLowerCommitIsIgnored)
	t.Run("GroupsAreIndependent", s.groupsAreIndependent)
	t.Run("SeveralTopicsAreReadTogether", s.severalTopicsAreReadTogether)
	t.Run("DeliveriesBelongToTheCaller", s.deliveriesBelongToTheCaller)
	t.Run("AnUnfitSubscriptionIsRefused", s.anUnfitSubscriptionIsRefused)
	t.Run("AClosedSubscriptionFails", s.aClosedSubscriptionFails)
}

func (s *suite) pollWaitsForRecords(t *testing.T) {
	c := s.open(t)
	topic := s.topic(t, c, 3)
	sub := subscribe(t, c, groupName(), topic)
	for _, wait := range []time.Duration{0, quiet} {
		batch, err := sub.Poll(t.Context(), 10, wait)
		if err != nil || len(batch) != 0 {
			t.Fatalf("poll of an empty topic: got %d deliveries, error %v", len(batch), err)
		}
	}
	sent := make(chan []error, 1)
	go func() { sent <- c.Publisher.Publish(t.Context(), records(topic, 1)) }()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	batch, err := sub.Poll(ctx, 10, patience)
	if err != nil || len(batch) != 1 {
		t.Errorf("got %d deliveries, error %v, want the one that came while waiting", len(batch), err)
	}
	if errs := <-sent; errs[0] != nil {
		t.Error(errs[0])
	}
}

func (s *suite) pollEndsWithItsContext(t *testing.T) {
	c := s.open(t)
	sub := subscribe(t, c, groupName(), s.topic(t, c, 2))
	ctx, cancel := context.WithTimeout(t.Context(), quiet)
	defer cancel()
	within(t, "Poll", func() {
		if batch, err := sub.Poll(ctx, 10, time.Hour); !errors.Is(err, context.DeadlineExceeded) || len(batch) != 0 {
			t.Errorf("got %d deliveries, error %v, want the context's", len(batch), err)
		}
	})
}

func (s *suite) pollKeepsItsLimit(t *testing.T) {
	c := s.open(t)
	topic := s.topic(t, c, 3)
	batch := records(topic, 30)
	publish(t, c.Publisher, batch...)
	sub := subscribe(t, c, groupName(), topic)
	var all []broker.Delivery
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for len(all) < len(batch) {
		got, err := sub.Poll(ctx, 7, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if len(got) > 7 {
			t.Fatalf("got %d deliveries, limit 7", len(got))
		}
		all = append(all, got...)
	}
	inOrder(t, all)
	wantIDs(t, all, eventIDs(batch)...)
	readNothing(t, sub)
}

// whatWasNotCommittedComesAgain reads 50 records, settles a prefix of each
// partition, and reads on with another client.
func (s *suite) whatWasNotCommittedComesAgain(t *testing.T) {
	c := s.open(t)
	topic, group := s.topic(t, c, 4), groupName()
	publish(t, c.Publisher, records(topic, 50)...)
	sub := subscribe(t, c, group, topic)
	var settled []broker.Delivery
	var rest []string
	taken := make(map[int32]int)
	for _, d := range read(t, sub, 50) {
		if taken[d.Partition]++; taken[d.Partition] <= 3 {
			settled = append(settled, d)
		} else {
			rest = append(rest, d.Record.EventID)
		}
	}
	commit(t, sub, settled...)
	if err := sub.Close(); err != nil {
		t.Fatal(err)
	}
	again := subscribe(t, s.open(t), group, topic)
	all := read(t, again, len(rest))
	wantIDs(t, all, rest...)
	readNothing(t, again)
	commit(t, again, all...)
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
	readNothing(t, subscribe(t, c, group, topic))
}

func (s *suite) aLowerCommitIsIgnored(t *testing.T) {
	c := s.open(t)
	topic, group := s.topic(t, c, 1), groupName()
	publish(t, c.Publisher, records(topic, 5)...)
	sub := subscribe(t, c, group, topic)
	all := read(t, sub, 5)
	commit(t, sub, all[3])
	commit(t, sub, all[1])
	if err := sub.Commit(t.Context(), nil); err != nil {
		t.Errorf("commit of nothing: %v", err)
	}
	if err := sub.Close(); err != nil {
		t.Fatal(err)
	}
	wantIDs(t, read(t, subscribe(t, c, group, topic), 1), all[4].Record.EventID)
}

func (s *suite) groupsAreIndependent(t *testing.T) {
	c := s.open(t)
	topic := s.topic(t, c, 2)
	batch := records(topic, 10)
	publish(t, c.Publisher, batch...)
	first := subscribe(t, c, groupName(), topic)
	commit(t, first, read(t, first, 10)...)
	second := subscribe(t, c, groupName(), topic) // starts at the oldest record
	wantIDs(t, read(t, second, 10), eventIDs(batch)...)
	publish(t, c.Publisher, record(topic, "late", "late"))
	wantIDs(t, read(t, first, 1), "late")
	wantIDs(t, read(t, second, 1), "late")
}

func (s *suite) severalTopicsAreReadTogether(t *testing.T) {
	c := s.open(t)
	one, two := s.topic(t, c, 2), s.topic(t, c, 3)
	publish(t, c.Publisher, record(one, "k", "1"), record(two, "k", "2"))
	sub := subscribe(t, c, groupName(), one, two)
	for _, d := range read(t, sub, 2) {
		if want := map[string]string{"1": one, "2": two}[d.Record.EventID]; d.Record.Topic != want {
			t.Errorf("event %s came from %s, want %s", d.Record.EventID, d.Record.Topic, want)
		}
	}
}

func (s *suite) deliveriesBelongToTheCaller(t *testing.T) {
	c := s.open(t)
	topic := s.topic(t, c, 1)
	publish(t, c.Publisher, records(topic, 1)...)
	one, two := subscribe(t, c, groupName(), topic), subscribe(t, c, groupName(), topic)
	d := read(t, one, 1)[0]
	for i := range d.Record.Value {
		d.Record.Value[i] = 'x'
	}
	if got, want := string(read(t, two, 1)[0].Record.Value), string(records(topic, 1)[0].Value); got != want {
		t.Errorf("got value %q, want %q", got, want)
	}
}

func (s *suite) anUnfitSubscriptionIsRefused(t *testing.T) {
	c := s.open(t)
	topic := s.topic(t, c, 1)
	for _, request := range []broker.SubscribeRequest{
		{Topics: []string{topic}}, {Group: groupName()}, {Group: groupName(), Topics: []string{topic, topicName()}},
	} {
		sub, err := c.Subscriber.Subscribe(t.Context(), request)
		if err == nil {
			t.Errorf("%+v was accepted", request)
			_ = sub.Close()
		}
	}
}

func (s *suite) aClosedSubscriptionFails(t *testing.T) {
	c := s.open(t)
	topic := s.topic(t, c, 1)
	publish(t, c.Publisher, records(topic, 1)...)
	sub := subscribe(t, c, groupName(), topic)
	d := read(t, sub, 1)[0]
	for range 2 {
		if err := sub.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}
	within(t, "Poll after Close", func() {
		if _, err := sub.Poll(t.Context(), 1, time.Hour); err == nil {
			t.Error("poll after close: got no error")
		}
	})
	if err := sub.Commit(t.Context(), []broker.Position{{Partition: partitionOf(d), Settled: d.Position}}); err == nil {
		t.Error("commit after close: got no error")
	}
}
