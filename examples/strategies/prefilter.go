package strategies

import (
	"github.com/redis/rueidis"

	"github.com/waybillhq/waybill/inbox"
	"github.com/waybillhq/waybill/inbox/redisfilter"
)

// WithRedis puts Redis in front of a consumer that gets many duplicates.
func WithRedis(config *inbox.Config, address string) (closeClient func(), err error) {
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{address}, DisableCache: true})
	if err != nil {
		return nil, err
	}
	config.Prefilter = redisfilter.New(client, nil)
	return client.Close, nil
}
