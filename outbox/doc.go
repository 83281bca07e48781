// Package outbox appends events to the outbox inside the transaction that
// makes the business change, so that both are committed or neither is.
package outbox
