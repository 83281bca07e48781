// Package chaos runs a producer, three relays and three consumers as processes
// over real databases and a real Kafka, and does to them what happens in a bad
// year: processes are killed and frozen, links are slowed, cut and silenced,
// servers are killed and restarted, a PostgreSQL fails over to its standby.
// Package verdict then compares what is left with the producer's own history.
//
// -chaos.for sets how long the mischief lasts, -chaos.seed which one it is. A
// run that fails names its seed.
package chaos
