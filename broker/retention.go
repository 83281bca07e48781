package broker

import (
	"context"
	"time"
)

// RetentionTeller is implemented by a broker that knows how long its topics keep
// records: so long can a record be delivered again.
type RetentionTeller interface {
	// TopicRetention returns how long each of the topics keeps a record; 0 means
	// for ever. A topic that does not exist, or may not be looked at, is an error.
	TopicRetention(ctx context.Context, topics []string) (map[string]time.Duration, error)
}
