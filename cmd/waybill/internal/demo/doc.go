// Package demo plays a small system through crashes and an outage, and then
// proves from its databases that every event was applied once in effect.
//
// An order service writes orders and their events to orders.db; a relay, a
// child process, sends them to a NATS server; an inventory consumer applies
// them to inventory.db. Meanwhile the relay is killed at bad moments and the
// server is stopped for a while. The proof is verify.sql: plain queries over
// the two files that a reader can repeat with the sqlite3 shell.
//
// The same is played on a PostgreSQL, MySQL or MariaDB server, in a database
// of its own, and with a Kafka or NATS server, on a topic of its own. Such a
// broker cannot be stopped, so its outage is that of a gate between it and
// those who play.
package demo
