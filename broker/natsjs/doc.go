// Package natsjs connects waybill to NATS JetStream.
//
// # Topics, partitions, keys
//
// A topic is one stream with a fixed number of partitions, and a partition is
// one subject of it: "<prefix>.<topic>.<partitions>.<partition>". A key belongs
// to the partition that its hash selects, so the records of a key are in one
// subject, in the order of their storing. The number of partitions is part of
// the subject: a publisher that still believes in another number, because the
// stream was made anew, reaches nobody, is told so, and looks again.
//
// Names of streams and subjects are made from topics by [Token], which keeps
// apart what is different. Streams are made with [Broker.EnsureTopics] only.
//
// # What an acknowledgement is worth
//
// A confirmed record is in the stream's file, or in the files of a majority when
// the stream has replicas. By default a server syncs its files on a timer, every
// two minutes: a record that was confirmed survives a crash of the server's
// process, but a single server may lose the latest ones with its power. Set
// "sync_interval: always" on the server ([EmbeddedConfig.SyncAlways] on an
// embedded one), or use three replicas in three places.
//
// # Duplicates
//
// JetStream drops a message whose Nats-Msg-Id it has seen within a window. A
// replay of an event is meant to arrive, so records are sent without one: each
// send that the server confirms is stored. Consumers recognise an event by its
// id, as with every other broker.
//
// # Reading
//
// JetStream does not share ordered partitions among the members of a group. The
// subscriptions of this package implement [broker.Assigner]: the inbox leases
// partitions in its own database and assigns them. A partition is read by an
// ephemeral pull consumer without acknowledgements, from the group's position
// on; the consumer is made again, from the record after the last one received,
// whenever a message is missed, the connection is lost or the server forgot it.
//
// Positions are the sequence numbers of the stream. A group's positions are
// entries of a key-value bucket, "<prefix>-positions", one for each partition,
// which are only ever raised, by compare-and-set. So another process reads on
// from what was committed as soon as it has the partition: there is no
// acknowledgement time-out to wait for, as there would be with a durable
// consumer, and no record that a dead reader still holds.
package natsjs
