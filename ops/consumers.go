package ops

import (
	"context"
	"time"

	"github.com/waybillhq/waybill/store"
)

// ConsumerStatus is one consumer group at one moment. Its JSON form is stable.
type ConsumerStatus struct {
	Inbox             string  `json:"inbox"`
	Group             string  `json:"group,omitempty"` // empty where the inbox cannot be read
	Readers           int     `json:"readers"`         // partitions with a live reader
	Partitions        int     `json:"partitions"`      // that the group has ever read
	Waiting           int64   `json:"waiting"`
	Blocked           int64   `json:"blocked"`
	Retry             int64   `json:"retry"`
	Dead              int64   `json:"dead"`
	OldestHeldSeconds float64 `json:"oldest_held_seconds"`
	Error             string  `json:"error,omitempty"` // why the inbox cannot be read
}

// ReadConsumers reads the groups of all inboxes. What cannot be read is told in
// its place.
func ReadConsumers(ctx context.Context, inboxes []Inbox) []ConsumerStatus {
	found := []ConsumerStatus{}
	for _, in := range readInboxes(ctx, inboxes) {
		if in.Err != nil {
			found = append(found, ConsumerStatus{Inbox: in.Name, Error: in.Err.Error()})
			continue
		}
		for _, group := range in.groups {
			found = append(found, readGroup(ctx, in.Inbox, group))
		}
	}
	return found
}

func readGroup(ctx context.Context, in Inbox, group string) ConsumerStatus {
	c := ConsumerStatus{Inbox: in.Name, Group: group}
	counts, err := in.Reader.CountHeld(ctx, group)
	if err != nil {
		c.Error = err.Error()
		return c
	}
	c.Waiting, c.Blocked, c.Retry, c.Dead = counts.Waiting, counts.Blocked, counts.Retry, counts.Dead
	c.OldestHeldSeconds = seconds(counts.OldestAge)
	readers, ok := in.Reader.(store.Readers)
	if !ok {
		c.Partitions = -1
		return c
	}
	rows, err := readers.ListReaders(ctx, group)
	if err != nil {
		c.Error = err.Error()
		return c
	}
	c.Partitions = len(rows)
	for _, r := range rows {
		if r.Owner != "" && r.ExpiresIn > 0 {
			c.Readers++
		}
	}
	return c
}

// judge says what is wrong with the group.
func (c *ConsumerStatus) judge(found *causes, maxAge time.Duration) {
	switch {
	case c.Error != "":
		found.add(Yellow, CauseInboxUnreadable, "mend inboxes."+c.Inbox+" in the configuration, or start that database", "inbox %s cannot be read: %s", c.Inbox, c.Error)
		return
	case c.stopped():
		found.add(Yellow, CauseConsumerStopped, "start the service that consumes as group "+c.Group, "group %s is not reading: none of its %d partitions has a live reader", c.Group, c.Partitions)
	}
	if c.Dead > 0 {
		found.add(Yellow, CauseConsumerDead, fixHeld("retry (or skip)", c.Group),
			"group %s: %d dead %s for a decision", c.Group, c.Dead, plural(c.Dead, "event waits", "events wait"))
	}
	if c.Retry > 0 && maxAge > 0 && c.OldestHeldSeconds > maxAge.Seconds() {
		found.add(Yellow, CauseConsumerRetrying, fixHeld("retry", c.Group),
			"group %s: %d %s again and again, the oldest is held for %s", c.Group, c.Retry, plural(c.Retry, "event fails", "events fail"),
			round(time.Duration(c.OldestHeldSeconds*float64(time.Second))))
	}
	if c.Waiting > 0 {
		found.add(Yellow, CauseConsumerWaiting, fixHeld("release (or skip)", c.Group)+"; or send what is missing again: waybill replay --key KEY",
			"group %s: %d %s for a lower version", c.Group, c.Waiting, plural(c.Waiting, "event waits", "events wait"))
	}
}

func (c *ConsumerStatus) stopped() bool { return c.Partitions > 0 && c.Readers == 0 }
