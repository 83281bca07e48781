package membroker

import (
	"context"
	"fmt"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
)

// SetRetention makes the broker say that a topic keeps records for so long; 0,
// as in the beginning, means for ever. It drops none.
func (b *Broker) SetRetention(topic string, kept time.Duration) {
	b.server.mu.Lock()
	defer b.server.mu.Unlock()
	if b.server.retention == nil {
		b.server.retention = make(map[string]time.Duration)
	}
	b.server.retention[topic] = kept
}

// TopicRetention returns what SetRetention said.
func (b *Broker) TopicRetention(ctx context.Context, topics []string) (map[string]time.Duration, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	b.server.mu.Lock()
	defer b.server.mu.Unlock()
	kept := make(map[string]time.Duration, len(topics))
	for _, name := range topics {
		if b.server.topics[name] == nil {
			return nil, &waybill.Error{Op: "topic retention", Key: name, Err: broker.Unavailable(broker.ScopeTopic, fmt.Errorf("no such topic"), "")}
		}
		kept[name] = b.server.retention[name]
	}
	return kept, nil
}
