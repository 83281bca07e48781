package kafka

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybillhq/waybill/broker"
)

// A group's position carries the number of partitions that its topic had. So
// the next process of the group learns that the topic was given more meanwhile:
// what is still unread of before, and what came afterwards, may be events of one
// key in two partitions.

const partitionsNote = "partitions="

// withCounts writes the number into each position of a commit.
func (s *subscription) withCounts(ctx context.Context) context.Context {
	return kgo.PreCommitFnContext(ctx, func(request *kmsg.OffsetCommitRequest) error {
		for i := range request.Topics {
			t := &request.Topics[i]
			n := s.broker.counts.current(t.Topic)
			if n == 0 {
				continue
			}
			note := partitionsNote + strconv.Itoa(n)
			for j := range t.Partitions {
				t.Partitions[j].Metadata = &note
			}
		}
		return nil
	})
}

// noted returns the number that a position carries, or 0.
func noted(metadata string) int {
	text, ok := strings.CutPrefix(metadata, partitionsNote)
	if !ok {
		return 0
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// compareCounts tells, once for each subscription and topic, of a number that
// has grown since a position was committed.
func (s *subscription) compareCounts(before map[string]int) {
	for topic, n := range before {
		now := s.broker.counts.current(topic)
		if n >= now || s.grown[topic] {
			continue
		}
		s.grown[topic] = true
		info := PartitionsChangedInfo{Group: s.group, Topic: topic, Before: n, Now: now}
		s.broker.config.Logger.Warn("a topic was given more partitions since this group read it last: events of a key that were published before and after may be in two partitions, and come out of order until the older ones are read",
			"group", s.group, "topic", topic, "before", n, "now", now)
		if hook := s.broker.config.Events.PartitionsChanged; hook != nil {
			hook(info)
		}
	}
}

// checkPositions looks for groups that have records to read in a partition and
// last did so when the topic had fewer. A client that may not look at groups
// learns nothing.
func (b *Broker) checkPositions(ctx context.Context, topic string, partitions int) []broker.Check {
	groups, err := b.admin.ListGroups(ctx)
	if err != nil {
		return nil
	}
	ends, err := b.admin.ListEndOffsets(ctx, topic)
	if err != nil {
		return nil
	}
	fetched := b.admin.FetchManyOffsets(ctx, groups.Groups()...)
	var checks []broker.Check
	for _, group := range slices.Sorted(slices.Values(groups.Groups())) {
		before, unread := 0, int64(0)
		fetched[group].Fetched.Each(func(o kadm.OffsetResponse) {
			n := noted(o.Metadata)
			end, known := ends.Lookup(topic, o.Partition)
			if o.Topic != topic || o.Err != nil || n == 0 || n >= partitions || !known || end.Err != nil || end.Offset <= o.At {
				return
			}
			before, unread = max(before, n), unread+end.Offset-o.At
		})
		if unread > 0 {
			checks = append(checks, broker.Check{
				Name:   "positions of " + group + " in " + topic,
				Detail: fmt.Sprintf("group %s read %s last when it had %d partitions, it has %d, and %d records wait in those", group, topic, before, partitions, unread),
				Hint:   "events of a key from before and after may come out of order: let the group read what is there before more is published",
			})
		}
	}
	return checks
}
