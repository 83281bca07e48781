package brokertest

import (
	"slices"
	"testing"

	"github.com/waybillhq/waybill/broker"
)

// assign is for brokers whose partitions the caller assigns.
func (s *suite) assign(t *testing.T) {
	c := s.open(t)
	sub := join(t, c, groupName(), s.topic(t, c, 1))
	if _, ok := sub.(broker.Assigner); !ok {
		t.Skip("the broker shares partitions itself")
	}
	t.Run("NothingIsReadBeforeAssign", s.nothingIsReadBeforeAssign)
	t.Run("ExactlyTheAssignedIsRead", s.exactlyTheAssignedIsRead)
	t.Run("AGivenBackPartitionStartsAtItsCommit", s.aGivenBackPartitionStartsAtItsCommit)
	t.Run("AnotherMemberGoesOnAtOnce", s.anotherMemberGoesOnAtOnce)
	t.Run("AnUnknownPartitionIsRefused", s.anUnknownPartitionIsRefused)
}

func assigner(t testing.TB, sub broker.Subscription) broker.Assigner {
	t.Helper()
	a, ok := sub.(broker.Assigner)
	if !ok {
		t.Fatal("the subscription is no broker.Assigner")
	}
	return a
}

func assign(t testing.TB, sub broker.Subscription, partitions ...broker.Partition) {
	t.Helper()
	if err := assigner(t, sub).Assign(t.Context(), partitions); err != nil {
		t.Fatalf("assign: %v", err)
	}
}

func partitions(topic string, n int) []broker.Partition {
	out := make([]broker.Partition, n)
	for i := range out {
		out[i] = broker.Partition{Topic: topic, ID: int32(i)}
	}
	return out
}

func (s *suite) nothingIsReadBeforeAssign(t *testing.T) {
	c := s.open(t)
	one, two := s.topic(t, c, 2), s.topic(t, c, 3)
	publish(t, c.Publisher, records(one, 4)...)
	sub := join(t, c, groupName(), one, two)
	readNothing(t, sub)
	all, err := assigner(t, sub).Partitions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range append(partitions(one, 2), partitions(two, 3)...) {
		if !slices.Contains(all, p) {
			t.Errorf("partition %v is not listed", p)
		}
	}
	if len(all) != 5 {
		t.Errorf("got %d partitions, want 5", len(all))
	}
}

func (s *suite) exactlyTheAssignedIsRead(t *testing.T) {
	c := s.open(t)
	topic := s.topic(t, c, 3)
	publish(t, c.Publisher, records(topic, 30)...)
	byPartition := make(map[int32][]string)
	for _, d := range read(t, subscribe(t, c, groupName(), topic), 30) {
		byPartition[d.Partition] = append(byPartition[d.Partition], d.Record.EventID)
	}
	if len(byPartition) != 3 {
		t.Fatalf("30 keys are in %d partitions, want all 3", len(byPartition))
	}
	all := partitions(topic, 3)
	sub := join(t, c, groupName(), topic)
	assign(t, sub, all[0], all[1])
	wantIDs(t, read(t, sub, len(byPartition[0])+len(byPartition[1])), append(byPartition[0], byPartition[1]...)...)
	readNothing(t, sub)
	assign(t, sub, all[1], all[2]) // 1 stays, and does not start again
	wantIDs(t, read(t, sub, len(byPartition[2])), byPartition[2]...)
	readNothing(t, sub)
	assign(t, sub)
	publish(t, c.Publisher, records(topic, 30)...)
	readNothing(t, sub)
}

func (s *suite) aGivenBackPartitionStartsAtItsCommit(t *testing.T) {
	c := s.open(t)
	topic := s.topic(t, c, 1)
	publish(t, c.Publisher, records(topic, 6)...)
	sub := join(t, c, groupName(), topic)
	all := partitions(topic, 1)
	assign(t, sub, all...)
	first := read(t, sub, 4)
	commit(t, sub, first[1])
	assign(t, sub)
	readNothing(t, sub)
	assign(t, sub, all...)
	wantIDs(t, read(t, sub, 4), "event-2", "event-3", "event-4", "event-5")
}

// anotherMemberGoesOnAtOnce leaves the first reader as a crash would: it is
// neither closed nor does it give anything back.
func (s *suite) anotherMemberGoesOnAtOnce(t *testing.T) {
	c := s.open(t)
	topic, group := s.topic(t, c, 2), groupName()
	publish(t, c.Publisher, records(topic, 20)...)
	crashed := subscribe(t, c, group, topic)
	all := read(t, crashed, 20)
	var settled []broker.Delivery
	var rest []string
	taken := make(map[int32]int)
	for _, d := range all {
		if taken[d.Partition]++; taken[d.Partition] <= 4 {
			settled = append(settled, d)
		} else {
			rest = append(rest, d.Record.EventID)
		}
	}
	commit(t, crashed, settled...)
	next := subscribe(t, s.open(t), group, topic)
	wantIDs(t, read(t, next, len(rest)), rest...)
	readNothing(t, next)

	// The crashed one wakes up and commits what it had read: that is behind
	// nothing, and takes nothing back.
	commit(t, next, all...)
	commit(t, crashed, settled...)
	last := subscribe(t, c, group, topic)
	readNothing(t, last)
}

func (s *suite) anUnknownPartitionIsRefused(t *testing.T) {
	c := s.open(t)
	topic, other := s.topic(t, c, 2), s.topic(t, c, 2)
	sub := join(t, c, groupName(), topic)
	for _, p := range []broker.Partition{{Topic: topic, ID: 2}, {Topic: topic, ID: -1}, {Topic: other, ID: 0}} {
		if err := assigner(t, sub).Assign(t.Context(), []broker.Partition{p}); err == nil {
			t.Errorf("partition %v was assigned", p)
		}
	}
}
