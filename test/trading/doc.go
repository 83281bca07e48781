// Package trading sends many orders through the chain of examples/trading, on
// PostgreSQL and Kafka and on MySQL and Kafka, while consumers are killed, groups
// rebalance, records come twice and late, and some events are poison. Then it
// compares what the consumers hold with what the producers committed.
//
// -trading.events sets the number of events; the folder results has runs of many.
package trading
