// Package inbox consumes events: a [Processor] reads a broker, and runs a
// [Handler] once in effect for each event, in order per key.
//
// # Effectively once
//
// A broker delivers an event at least once. The handler gets a transaction of
// the consumer's own database; the processor inserts the event's id into the
// table consumed_event in that same transaction, before the handler runs. What
// the handler writes and the fact that it ran are so committed together or not
// at all, and a second delivery finds the id and is counted as a duplicate. The
// broker learns of progress only after the commit. Effects outside of that
// transaction need an [Effect].
//
// Many events share one transaction, and several transactions work at once on
// the keys of one partition. A handler that fails undoes its own event alone; to
// that end those before it may run again.
//
// # Failures
//
// An event whose handler returns an error, panics or runs over its time is held:
// it goes into held_event as RETRY, is tried again after 1 s, 5 s, 30 s and
// 5 min, and ends DEAD. Later events of its key are held behind it as BLOCKED,
// and are handled in order once it succeeded; events of other keys go on, and so
// does the position in the partition. What follows a DEAD event is
// [Config.OnDead]'s choice. A handler steers its event with [RetryAfter], [Dead]
// and [Park].
//
// A record that cannot be decoded is held DEAD under an id made of its place.
//
// A handler that ends the whole process is found after the restart, by
// handling the first events one at a time with a committed mark, and its event
// ends DEAD too. When the handler fails for every key, the fault is not the
// events': the processor pauses and tries one event from time to time, instead
// of holding everything.
//
// # Schema versions
//
// [Config.Schemas] brings older data to the version that the handler understands.
// An event of a version that this program does not know is held DEAD without an
// attempt, and handled by the first program that knows it. [Config.Validator]
// judges data before the handler sees it.
//
// # Other systems
//
// What a consumer has another system do is declared as an [Effect]: the call is
// committed before it is made, and its answer with what the handler does. Where
// nobody can know what a call did, a person is asked.
//
// # Dead letters and retention
//
// [Config.DeadLetters] gets a copy of each DEAD event. [Config.Retention] says how
// long ids are remembered; events that may have been forgotten are held DEAD.
//
// # Order
//
// A [Gate] lets the versions of an aggregate through one after the other: what
// comes too late is settled as STALE and not handled, what comes too early is held
// WAITING until the gap is filled, by the broker, by [Config.OnGap] or by a
// person. [Events.Gap] tells of gaps that stay. A group that begins in the middle
// of a topic sets [Config.Baseline] or [Config.Snapshot].
//
// Events of one topic and key are handled in the order of their partition. Held
// events of one key are released in that order, except that events of one
// aggregate are put in the order of their versions.
//
// # Other protection
//
// Package guard protects effects by the table that holds them. A [Prefilter]
// spares the database known duplicates. A [LossyProcessor] protects nothing.
package inbox
