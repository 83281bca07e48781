// Package demo plays a small system through crashes and an outage, and then
// proves from its databases that every event was applied once in effect.
//
// An order service writes orders and their events to orders.db; a relay, a
// child process, sends them to a NATS server; an inventory consumer applies
// them to inventory.db. Meanwhile the relay is killed at bad moments and the
// server is stopped for a while. The proof is verify.sql: plain queries over
// the two files that a reader can repeat with the sqlite3 shell.
package demo
