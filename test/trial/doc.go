// Package trial lets reconciliation find what was planted. Purchases are made on
// PostgreSQL, their events go by relays and Kafka to consumers on MySQL, relays
// and consumers are killed all the while, and at random moments something is
// broken that a check should notice, or done that it should not. What was done
// is written down, and compared with what the runs of the check report.
//
// -trial.faults is how much is broken, -trial.seed repeats a choice of faults,
// -trial.quiet is how many runs go without any; the folder results has their
// outcomes.
package trial
