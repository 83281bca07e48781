package kafka

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/waybillhq/waybill"
)

var errNoRetention = errors.New("the cluster does not tell")

// TopicRetention returns what retention.ms says of each topic. A topic that is
// compacted keeps the last record of a key for ever.
func (b *Broker) TopicRetention(ctx context.Context, topics []string) (map[string]time.Duration, error) {
	if len(topics) == 0 {
		return nil, nil
	}
	if err := b.usable(ctx); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	configs, err := b.admin.DescribeTopicConfigs(ctx, topics...)
	if err != nil {
		return nil, &waybill.Error{Op: "topic retention", Err: b.link.classifyRequest(err)}
	}
	kept := make(map[string]time.Duration, len(topics))
	for _, name := range topics {
		config, err := configs.On(name, nil)
		if err == nil {
			err = config.Err
		}
		if err != nil {
			return nil, &waybill.Error{Op: "topic retention", Key: name, Err: b.link.classifyRequest(err), Hint: "grant this client DESCRIBE_CONFIGS on the topic"}
		}
		if policy, _ := textConfig(config, "cleanup.policy"); strings.Contains(policy, "compact") {
			kept[name] = 0
			continue
		}
		text, _ := textConfig(config, "retention.ms")
		ms, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, &waybill.Error{Op: "topic retention", Key: name, Err: errNoRetention}
		}
		kept[name] = max(milliseconds(ms), 0)
	}
	return kept, nil
}

// milliseconds are for ever where a duration has no room for them.
func milliseconds(ms int64) time.Duration {
	if ms > int64(time.Duration(1<<63-1)/time.Millisecond) {
		return 0
	}
	return time.Duration(ms) * time.Millisecond
}
