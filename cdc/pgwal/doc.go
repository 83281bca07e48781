// Package pgwal reads which events were committed from the write-ahead log of
// PostgreSQL 15 or newer: through a logical replication slot with the plugin
// pgoutput, which every server has, and a publication of the outbox alone.
//
// # What leaves the server
//
// The publication has the column id of inserted rows, and TRUNCATE. Payloads are
// not sent. The relay reads them from the tables as it does when it polls.
//
// # One transaction after the other
//
// Transactions come whole, in the order of their commits, after their commit. A
// large one is put aside by the server, on its disk beyond
// logical_decoding_work_mem, and told in parts; the memory of the reader does not
// grow with it. What was rolled back, to a savepoint too, is never sent; a
// prepared transaction is sent when it is committed.
//
// # Places
//
// A position is an LSN, that behind the record of a commit. The server keeps what
// was acknowledged too, and takes the later of both. While the outbox is idle, and
// all that was sent is acknowledged, the place moves on with the log of the other
// tables and databases, so that nothing is kept for the sake of a relay that has
// nothing to do.
//
// # What can be lost
//
// A slot that was dropped is [cdc.LostSlot]. One that was away for longer than
// max_slot_wal_keep_size or idle_replication_slot_timeout allow is
// [cdc.WALRemoved]. A position beyond the log's end, as after a restore, and a log
// that cannot be decoded, as when the publication was made anew, are
// [cdc.PositionUnknown]. In each case Open makes a new slot when it is called
// without a position.
//
// A new slot waits for all transactions that are open on the server. Open says
// after a while which those are, as [cdc.Blocked]; the making goes on, and the
// next call of Open waits for it.
//
// # Rights
//
// The account needs REPLICATION, and what the relay needs in any case.
// [Source.Setup] creates the publication where the account owns the table;
// otherwise the owner runs what [Source.Grants] returns, as
//
//	ALTER ROLE relay REPLICATION;
//	GRANT CONNECT ON DATABASE app TO relay;
//	CREATE PUBLICATION waybill_app FOR TABLE outbox_event (id)
//	WITH (publish = 'insert, truncate', publish_via_partition_root = true);
//
// # Marks
//
// A mark is a transactional message of pg_logical_emit_message. The server sends
// the messages of other programs in the same database too, which are passed over;
// one of them is held in memory for a moment, however large it is.
package pgwal
