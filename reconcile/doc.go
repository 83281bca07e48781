// Package reconcile compares three accounts of the same facts: the business
// table a service writes (W), the log of events it wrote beside it (L), and the
// read model that a consumer derives from the events (R). It says of each key
// what is missing, orphaned, different or merely on its way.
//
// The tables are the user's own. A [Check] names them, their key, version and
// the columns to compare; the log may be any table with a column that tells
// sent events from waiting ones, or the outbox of this module ([Outbox]).
//
//	engine, err := reconcile.New(check, reconcile.Databases{
//		"shop":   {DB: shop, Dialect: reconcile.Postgres},
//		"search": {DB: search, Dialect: reconcile.MySQL},
//	}, nil)
//	report, err := engine.Run(ctx)
//
// W and L are read chunk by chunk, each chunk in one read-only snapshot, so a
// transaction is seen whole or not at all and the write side needs no grace
// time. R follows, and L once more for the keys where R seems to know more
// than L does: what was sent in between is no finding. What still differs is
// read again after a while ([Check.Confirm]) and reported only if it persists.
//
// # Verdicts
//
// A key has at most one verdict on its write side and one on its read side:
//
//   - MISSING_EVENT: the row is newer than the latest sent event.
//   - ORPHAN_EVENT: the log has an event of a row that is not there, or is ahead of it.
//   - MISMATCH_WRITE: row and event have one version and different content.
//   - MISMATCH_READ: the read model differs from the latest sent event.
//   - IN_FLIGHT: listed, but no difference: the event is waiting for the relay
//     or the consumer, and no longer than allowed.
//   - UNVERIFIED: nothing could be proved, because a range could not be read or
//     the log no longer has the event.
//
// [Judge] is the whole decision, a function without side effects.
//
// # Repairs
//
// [Engine.Rebuild] brings the read model to what the log makes of it. The write
// side is mended by a [Repairer], whose plans are looked at before they are
// applied: what was never written is made of the row, and where row and event
// contradict each other a person decides.
//
// # Values
//
// NULL, the empty text and the text NULL are three values. Numbers are equal by
// value, times by instant at the precision of the coarser side, JSON by
// content. What had to be normalised to be equal is listed in the report.
package reconcile
