// Package cdc is the contract between waybill and a database's own log: a
// [Source] tells which events were committed, and in which order, and nothing
// more. Whether an event is still to be sent, and what it says, the tables tell.
//
// So a source is trusted with speed and not with delivery. Ids that are shown
// twice do no harm, and ids that are never shown are found in the queue: the relay
// reads it whenever a stream begins, whenever it could not keep up, and once a
// minute besides. A source must not, however, show an id before its transaction
// has committed, or one transaction's ids before those of a transaction that
// committed earlier.
//
// An adapter lives in a package of its own below this one and is proved by
// [github.com/waybillhq/waybill/cdc/cdctest]. The package memlog is an in-memory
// log that passes the same suite.
package cdc
