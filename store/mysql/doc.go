// Package mysql keeps the outbox and the inbox in MySQL 8.4 or newer, or in
// MariaDB 10.11 or newer, through github.com/go-sql-driver/mysql.
//
//	st, err := mysql.Open(ctx, "user:password@tcp(127.0.0.1:3306)/shop", nil)
//	err = st.Migrate(ctx, store.MigrateOptions{})
//
//	tx, err := db.BeginTx(ctx, nil)             // any pool of the application
//	_, err = tx.ExecContext(ctx, "UPDATE ...")  // the business write
//	err = outbox.NewWriter[store.SQLTx](st, nil).Append(ctx, tx, event)
//	err = tx.Commit()
//
// # Sessions
//
// [Store.DB] is the store's own pool, at READ COMMITTED, in UTC and strict.
// Producers may use any other one over the same database: what Append sends does
// not depend on the session's isolation, time zone, sql_mode or parseTime.
// interpolateParams=true in its DSN saves a round trip for each Append.
//
// # Locks
//
// The relay and the cleanup touch rows one by one, by their primary key and in
// its order, at READ COMMITTED, so they never wait for rows that an open
// transaction has inserted, and leave no gaps locked. Where the server makes them
// the victim of a deadlock they begin again.
//
// An id that the producer chose, and may choose again, is looked up before the
// INSERT, for one round trip more than an id of waybill.NewID: a duplicate that
// the INSERT itself meets, because another transaction committed it meanwhile,
// is passed over too, but stays locked until the transaction ends.
//
// # Plain SQL
//
// One INSERT into outbox_event with event_id, aggregate_type, aggregate_id,
// event_type, topic and payload is a complete event, from any language: triggers
// fill in the key and the queue. Times are UTC, whatever the session's zone is.
//
// # Which rows may still appear
//
// Ids are given out before their transactions commit, so a lower id may become
// visible after a higher one. [Store.Frontier] tells when that is over: when all
// transactions that were running have ended, as information_schema.INNODB_TRX
// shows them. Readers do not count. The list is only shown to accounts with the
// right PROCESS; for others the relay reads again what was inserted within
// [Config.CommitWindow], which costs it throughput, and has the events of a
// transaction that commits even later sent by its sweep, within about a minute.
//
// # Rights
//
// A producer needs INSERT on outbox_event, and SELECT where it appends from Go;
// the triggers run with the rights of the account that migrated, which must
// stay. Without the triggers it needs INSERT, SELECT and UPDATE on
// outbox_pending too. The relay needs SELECT, INSERT, UPDATE and DELETE on all
// tables, and PROCESS to see which transactions run. Migrate needs CREATE, CREATE
// VIEW, ALTER, INDEX, DROP and TRIGGER; where the binary log is on, also
// log_bin_trust_function_creators=1 or SUPER.
package mysql
