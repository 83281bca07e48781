// Package verdict judges what a run of chaos left behind. It knows the tables,
// the topic and the writer's own history, and reads them with plain SQL and a
// plain client: nothing of what it judges helps it to judge.
//
// Read the databases with [ReadShop] and [ReadBack], the topic with [ReadTopic]
// and the history with [ReadHistory], then ask [Seen.Check].
package verdict
