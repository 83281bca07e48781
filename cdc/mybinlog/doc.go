// Package mybinlog reads which events were committed from the binary log of
// MySQL 8.4 or newer and of MariaDB 10.11 or newer, as a replica does.
//
// # What leaves the server
//
// A server sends its whole log to whoever reads it, all databases, with all
// columns of all rows. Of that the package decodes the ids of rows inserted into
// the outbox, and passes over the rest unread. Give the connection encryption
// where the network is not trusted: the stream uses what the DSN says.
//
// # What the server needs
//
// log_bin, binlog_format=ROW, and for MySQL gtid_mode=ON; any binlog_row_image.
// With binlog_row_metadata=FULL the log names the columns of its rows; otherwise
// the catalogue is asked where the id is, which does not know how the table was
// before it was changed. What cannot be decoded is counted, and the relay finds
// it in the queue. [Source.Setup] refuses what does not work, [Source.Check]
// looks at the rest, and [Source.Grants] lists the rights.
//
// # Transactions
//
// They come whole, in the order of the log. The server logs a transaction a moment
// before it makes it visible. A large one is told in parts, and the memory of the
// reader does not grow with it, compressed or not. A transaction that was prepared
// by XA is told when it commits; one that was prepared before the stream began, or that has more than
// a million ids, is counted as undecodable. Savepoints and engines without
// transactions are minded.
//
// # Places
//
// A position is a set of GTIDs in MySQL, tags included, and the last GTID of each
// domain in MariaDB. It moves on when a transaction ends. While a branch is
// prepared, for ten minutes at most, the position stays before it. The server
// keeps no place for its readers and removes its log by age: [cdc.BinlogPurged]
// is the state of a reader that was away for longer. A server that does not know
// the position, as after a restore, is [cdc.PositionUnknown].
//
// # One reader
//
// A lock of the server (GET_LOCK) lets one process read at a time; it is free some
// seconds after a process has died. Readers have a server id, as replicas do,
// which is derived from the host's name. MariaDB ends a reader when another one
// comes with its id, so that is looked for first: [cdc.ServerIDConflict].
package mybinlog
