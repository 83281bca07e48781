package brokertest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
)

// share is for brokers that share partitions among the members of a group.
func (s *suite) share(t *testing.T) {
	const n = 40
	c := s.open(t)
	topic, group := s.topic(t, c, 4), groupName()
	one := join(t, c, group, topic)
	if _, ok := one.(broker.Assigner); ok {
		t.Skip("the broker does not share partitions: the caller assigns them")
	}
	two := join(t, s.open(t), group, topic)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()

	// Nothing is committed. Both poll until each partition has its one reader and
	// both members have some.
	home := make(map[string]int32) // of a key
	var owner map[int32]broker.Subscription
	for round := 0; !shared(owner); round++ {
		publish(t, c.Publisher, roundOf(topic, n, round)...)
		owner = make(map[int32]broker.Subscription)
		for _, sub := range []broker.Subscription{one, two} {
			for _, d := range drain(ctx, t, sub) {
				if other := owner[d.Partition]; other != nil && other != sub {
					owner[d.Partition] = nil // it moved between the two: not settled yet
				} else {
					owner[d.Partition] = sub
				}
				home[d.Record.Key] = d.Partition
			}
		}
	}

	// The one that stays reads again what the other one had.
	if err := one.Close(); err != nil {
		t.Fatal(err)
	}
	missing := make(map[string]bool)
	for key, partition := range home {
		if owner[partition] == one {
			missing[fmt.Sprintf("round-0-%s", key)] = true
		}
	}
	for len(missing) > 0 {
		batch, err := two.Poll(ctx, n, time.Second)
		if err != nil {
			t.Fatalf("still missing %v: %v", missing, err)
		}
		for _, d := range batch {
			delete(missing, d.Record.EventID)
		}
	}
}

// shared reports whether four partitions have a reader each, and two readers
// at least one.
func shared(owner map[int32]broker.Subscription) bool {
	members := make(map[broker.Subscription]bool)
	for _, sub := range owner {
		if sub == nil {
			return false
		}
		members[sub] = true
	}
	return len(owner) == 4 && len(members) == 2
}

func drain(ctx context.Context, t testing.TB, sub broker.Subscription) []broker.Delivery {
	t.Helper()
	var all []broker.Delivery
	for {
		batch, err := sub.Poll(ctx, 1000, quiet)
		if err != nil {
			t.Fatalf("poll: %v", err)
		}
		if len(batch) == 0 {
			return all
		}
		all = append(all, batch...)
	}
}

func roundOf(topic string, n, round int) []waybill.Record {
	out := records(topic, n)
	for i := range out {
		out[i].EventID = fmt.Sprintf("round-%d-%s", round, out[i].Key)
	}
	return out
}
