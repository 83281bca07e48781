// Package store is the contract between waybill and a database, split by role:
//
//   - [Schema] creates and checks the tables;
//   - [Appender] adds events inside the caller's transaction, and
//     [CommitAppender], where there is one, commits it too;
//   - [Queue], [Leases] and [Positions] serve the relay;
//   - [Inspector], [Operator], [Cleaner], [Forgetter] serve people and schedules;
//   - [Inbox], [HeldReader] and [Readers] serve consumers.
//
// An adapter lives in a package of its own below this one, implements the
// roles of the side it is used on (usually all), and is proved by
// [github.com/waybillhq/waybill/store/storetest]. The package memstore is an
// in-memory store that passes the same suite.
//
// # Rules for every adapter
//
// Each method makes one attempt unless its comment says otherwise; an error
// wraps its cause with [waybill.Error]. Leases, schedules and ages are computed
// by the database's clock. Durations go in and come out, never points in time
// that the caller would have to compare with its own clock. Text is compared
// byte by byte. All methods but those of a transaction may be called from
// several goroutines. Slices that go in are not kept; slices and byte slices
// that come out belong to the caller.
package store
