// Package postgres keeps the outbox and the inbox in PostgreSQL 15 or newer.
//
// Open connects by a DSN; New works over a pool that the application has
// already. Producers append through [Store.Append] with a [pgx.Tx], or through
// [Store.SQL] with a *sql.Tx over pgx's stdlib driver, or with anything else
// that executes SQL, as gorm, sqlx and bun do. A producer in another language
// inserts one row into outbox_event; a trigger does the rest.
//
//	tx, err := st.Begin(ctx)                   // or pool.Begin(ctx)
//	_, err = tx.Exec(ctx, "UPDATE orders ...") // the business write
//	err = writer.AppendCommit(ctx, tx, event)  // append and commit in one trip
//
// where writer is outbox.NewCommitWriter(st, nil).
//
// # Poolers
//
// No session state is relied on: no session-level advisory lock, LISTEN, SET or
// temporary table. Behind a pooler in transaction mode, which keeps no prepared
// statements, add default_query_exec_mode=exec (or simple_protocol) to the DSN.
//
// # Which rows may still appear
//
// Ids are given out by a sequence before their transactions commit, so a lower
// id may become visible after a higher one. [Store.Frontier] tells when that is
// over, from transaction numbers: a transaction takes its number before its
// first event id (a trigger and Append see to it), so every id below the
// greatest visible one belongs to a transaction numbered below the next unused
// number; once all of those have ended, nothing can appear there. The relay
// sends such late rows in any case; the frontier only lets it stop looking.
//
// # Rights
//
// A producer needs INSERT on outbox_event and, where it appends from Go, SELECT
// on that table's event_id for RETURNING; the trigger's function runs with its
// owner's rights. Without the trigger it needs INSERT, SELECT and UPDATE on
// outbox_pending too. The relay needs SELECT, INSERT, UPDATE and DELETE on all
// tables, and Migrate what CREATE asks for.
package postgres
