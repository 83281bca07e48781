// Package kafka connects waybill to Apache Kafka.
//
//	b, err := kafka.Open(ctx, &kafka.Config{Brokers: []string{"127.0.0.1:9092"}})
//
// A [Broker] is publisher, subscriber, topic administration and check in one.
// [ParseURL] makes a configuration from one line.
//
// # Publishing
//
// Records are confirmed by all replicas that are in sync (acks=all) and written
// by idempotent producers, so that a connection that breaks in the middle of a
// call costs no duplicate within that call. A key belongs to the partition that
// the Java client gives it, murmur2 of its bytes, so that other producers of the
// topic agree. Where a topic gets more partitions, keys stay where they were
// until this process ends; [Events.PartitionsChanged] and Check tell of it. A
// group's positions carry the number, so that a later process finds the change, too.
//
// What an acknowledgement is worth depends on the cluster: with one replica, a
// record is lost with its broker; with three, min.insync.replicas=2 and no
// unclean election it is not. Check says what a topic has. A broker itself syncs
// its files on a timer and relies on its replicas.
//
// Each call of Publish has a producer of its own while it runs. All records of
// a key are in one partition; the batches of a producer are taken in sequence,
// or not at all, which is why nothing is stored behind a record that failed. A
// broker refuses a batch as a whole. The records of one are sent again in halves
// until those that are to blame stand alone; the others are stored.
//
// # What errors mean
//
// A record that is too large or that the broker finds invalid is permanent.
// Unknown topics and missing rights there are unavailable topics; partitions
// without a leader or enough replicas are unavailable partitions; lost
// connections, wrong credentials and quotas are an unavailable broker. A request
// that was sent and has no answer is unknown. While no broker can be reached,
// Publish says so within about a second, and nothing of the call is sent later.
//
// # Consuming
//
// The cluster shares the partitions of the topics among the members of a group
// (cooperative, sticky). They move while Poll waits, and stay while records are
// handled, for as long as [Config.RebalanceTimeout]; a member that takes longer
// loses its session and cannot commit. Positions are Kafka's own, so that its
// tools show a group's lag.
//
// A group without a position in a partition starts at the oldest record. So does
// one whose position does not exist, because records were deleted unread or the
// cluster has lost some: reading again is harmless to an inbox, and missing is
// not. [Events.PositionReset] tells of it.
package kafka
