// Package redisfilter remembers in Redis which events a consumer group has
// consumed, so that duplicates can be told without a writing transaction.
//
// It is a [github.com/waybillhq/waybill/inbox.Prefilter] and no more: the
// database decides. An event is remembered after its transaction was committed,
// and one that is remembered is still looked up in the consumer's database
// before it is passed over. So nothing that happens to Redis loses an event or
// makes an effect happen twice: not a mark that was set before a rollback, not a
// process that was killed between mark and commit, not FLUSHALL, not an eviction,
// a fail-over that lost the newest keys, or Redis being away.
//
//	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{"127.0.0.1:6379"}})
//	...
//	config.Prefilter = redisfilter.New(client, nil)
//
// Is it worth another server? A processor marks a whole batch in one statement,
// duplicates included, so measure first. It pays where duplicates are many and
// the database's writes are scarce, as in a replay of yesterday's topic.
//
// Listeners that are no processor use [Filter.Once].
package redisfilter
