// Package relay delivers the outbox's events to a broker: at least once, and in
// order per topic and key, through crashes and outages.
//
// A [Relay] holds leases on lanes, reads their queue rows, and keeps what it
// knows of each key in a scheduler that one goroutine owns. Reading, publishing,
// settling and renewing run beside it and report back, so no broker call is
// made while a transaction is open, and no row is rewritten to claim it.
//
// Several relays may run on one database; they share the lanes evenly. What a
// relay sends twice after a crash carries the same event id.
package relay
