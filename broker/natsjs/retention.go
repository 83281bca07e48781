package natsjs

import (
	"context"
	"time"

	"github.com/waybillhq/waybill"
)

// TopicRetention returns the greatest age that each topic's stream allows.
func (b *Broker) TopicRetention(ctx context.Context, topics []string) (map[string]time.Duration, error) {
	if err := b.usable(); err != nil {
		return nil, err
	}
	kept := make(map[string]time.Duration, len(topics))
	for _, name := range topics {
		_, info, err := b.look(ctx, name)
		if err != nil {
			return nil, &waybill.Error{Op: "topic retention", Key: name, Err: classifyLookup(err)}
		}
		kept[name] = info.Config.MaxAge
	}
	return kept, nil
}
