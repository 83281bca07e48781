// Command peers measures the relay beside what people would take instead: how
// fast each gets a queue of the same events from PostgreSQL to Kafka, at what
// price, how long one event takes when there is little to do, and what becomes of
// one transaction with very many events.
//
//	test/bench/peers/run             all of it, with servers of its own
//	test/bench/peers/run drain       a part: drain, delayed, latency or burst
//
// Who takes part:
//
//   - waybill: the relay with its default settings, in a process of its own
//   - three tables: the loop of "waybill bench relay" over the same three tables
//   - one table: a loop over a single table with a status column
//   - one by one: a loop that sends one record, waits for its answer, and
//     deletes the row, as most libraries for the purpose do
//   - watermill: the forwarder of watermill-sql, with franz-go behind its
//     publisher
//   - debezium: its PostgreSQL connector with the outbox event router in a warm
//     Kafka Connect, with larger batches than its defaults when it drains
//
// In latency and burst there are waybill, polling and reading the database's log,
// and debezium with several settings.
//
// All send raw records to topics alike. In drain, the first four and watermill end
// with the commit of what they have sent; of Debezium the last record in its topic is
// what is waited for, since it keeps nothing in the database.
package main
