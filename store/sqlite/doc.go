// Package sqlite keeps the outbox and the inbox in a SQLite database, through
// the driver modernc.org/sqlite, which needs no C compiler.
//
//	st, err := sqlite.Open(ctx, "orders.db", nil)
//	err = st.Migrate(ctx, store.MigrateOptions{})
//
//	tx, err := st.DB().BeginTx(ctx, nil) // BEGIN IMMEDIATE
//	_, err = tx.ExecContext(ctx, "UPDATE ...")
//	err = outbox.NewWriter[store.SQLTx](st, nil).Append(ctx, tx, event)
//	err = tx.Commit()
//
// # Connections
//
// SQLite has one writer at a time. A [Store] writes through one connection, the
// one behind [Store.DB], whose transactions begin with BEGIN IMMEDIATE: within
// a process writers queue up fairly instead of meeting SQLITE_BUSY, and a
// transaction never fails halfway because another one wrote first. Whoever
// holds a transaction of DB must not wait for a second one, nor write through
// the Store, before it has ended: that waits for itself. The Store's methods then
// fail after [Config.BusyTimeout]; a second BeginTx waits until its context
// ends. Reads use a pool of their own and never wait, since the
// database is in WAL mode.
//
// Other processes, the sqlite3 shell among them, and other handles of the same
// process may use the file too. They should set a busy time-out ("sqlite3 -cmd
// '.timeout 5000'") and begin writing transactions with BEGIN IMMEDIATE.
//
// # Durability
//
// Transactions of DB and of consumers are durable when they are committed
// (synchronous=FULL). What the relay writes for itself, leases and receipts, is
// committed with synchronous=NORMAL: a loss of power can undo the newest of it,
// which repeats a send and loses none. A DSN that sets synchronous itself
// decides for all.
//
// # Memory
//
// The writing connection keeps up to 16 MB of pages in memory and lets the log
// grow to as much before it is copied into the database. What a savepoint may have
// to restore, temporary tables, and what a CREATE INDEX sorts are kept in memory
// as well: whoever indexes a large table through DB may want
// "_pragma=temp_store(1)" in the DSN, which uses files. cache_size and
// wal_autocheckpoint can be set in the same way. Statements that handlers repeat
// are prepared once, up to 100 of them.
//
// # Plain SQL
//
// One INSERT into outbox_event with event_id, aggregate_type, aggregate_id,
// event_type, topic and payload is a complete event, from any language and from
// the sqlite3 shell (3.38 or later): the trigger fills in the key and the queue
// with functions that every SQLite has. Times are text in UTC with milliseconds,
// as strftime('%Y-%m-%dT%H:%M:%fZ', 'now') writes them.
package sqlite
