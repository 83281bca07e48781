package store

// Outbox is all that the relay and its operators need of a database.
type Outbox interface {
	Schema
	Queue
	Leases
	Positions
	Inspector
	Operator
	Cleaner
}

// Consumer is all that a consumer whose handlers see transactions of type TX
// needs of a database.
type Consumer[TX any] interface {
	Schema
	Inbox[TX]
	HeldReader
	Effects
	DeadLetters
	Readers
	Forgetter
}

// OneWriter is implemented by stores whose database has one writing transaction
// at a time, so that a second one gains nothing.
type OneWriter interface{ OneWriter() }
