// Package ops answers the questions of the person on call and carries out
// what that person decides. The command line and any console call the same
// functions, so both say the same:
//
//   - [ReadStatus] sums up the queue, the lanes and the relays, and says what
//     is wrong in words;
//   - [Trace] follows one event, or the events of one key, from the producer
//     to every consumer;
//   - [ListDead], [RetryDead], [SkipDead] and [Requeue] are the verbs on
//     outbox events; each needs a reason and leaves an audit entry;
//   - [Cleanup] removes settled events in small steps;
//   - [Doctor] looks for what cannot heal by itself.
//
// The functions read what the tables say and keep no state of their own. What
// cannot be known is said to be unknown, with the cause.
package ops
