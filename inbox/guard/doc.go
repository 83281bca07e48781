// Package guard keeps an effect from happening twice by means of the table that
// holds it, where the table consumed_event is not enough or not there: in the
// HTTP callback of a payment provider, in a job that runs again, against a
// producer that gives one fact two event ids.
//
//   - [Unique]: a business key that a table takes once, a payment number.
//   - [Machine]: a status that changes along known moves only, by compare-and-set.
//   - [Versioned]: an optimistic lock; and state that its newest version wins,
//     which makes a repetition harmless by nature.
//   - [Consumed]: the inbox's own table, for consumers that are no
//     [github.com/waybillhq/waybill/inbox.Processor].
//
// Each works inside the caller's transaction, a [Tx], so that the guard and what
// it guards are committed together. None protects what lies outside of that
// transaction: a mail, a call to another service.
//
// Statements bind all values and quote all names. Columns are given as [Row].
package guard
