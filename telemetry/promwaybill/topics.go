package promwaybill

import "sync"

// Config adjusts a collector. Nil means all defaults.
type Config struct {
	// Topics get labels of their own in any case.
	Topics []string
	// MaxTopics bounds the topics that are told apart, those in Topics included;
	// further ones are counted as "other". 0 means 100.
	MaxTopics int
}

// Other is the label of topics beyond the bound.
const Other = "other"

// topics keeps the number of labels bounded: whoever writes events chooses
// their topics, and must not be able to fill the memory of those who count them.
type topics struct {
	mu    sync.Mutex
	known map[string]struct{}
	limit int
}

func newTopics(config *Config) *topics {
	t := &topics{known: make(map[string]struct{}), limit: 100}
	if config == nil {
		return t
	}
	if config.MaxTopics > 0 {
		t.limit = config.MaxTopics
	}
	for _, topic := range config.Topics {
		if len(t.known) < t.limit {
			t.known[topic] = struct{}{}
		}
	}
	return t
}

func (t *topics) label(topic string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.known[topic]; ok {
		return topic
	}
	if len(t.known) >= t.limit {
		return Other
	}
	t.known[topic] = struct{}{}
	return topic
}
