package cdctest

import (
	"testing"

	"github.com/waybillhq/waybill/cdc"
)

// Harness tells the suite how to reach a kind of database.
type Harness struct {
	// Open makes a database, or a schema of one, with an empty outbox of its own,
	// and removes it with all that its sources made at the end of the test.
	Open func(t testing.TB) Database
	// Huge is how many rows the suite inserts in one transaction to see that they
	// are told in parts. 0 means 3 times cdc.MaxIDs.
	Huge int
}

// Database is what the suite does to one outbox.
type Database struct {
	// Source returns a source as another process would have it: all that it
	// returns share one name and one position in the log.
	Source func(t testing.TB) cdc.Source
	// Begin opens a transaction on a connection of its own.
	Begin func(t testing.TB) Tx
	// Truncate empties the outbox with a TRUNCATE, without a reset of ids.
	Truncate func(t testing.TB)
	// Unrelated commits something in a table that is not the outbox.
	Unrelated func(t testing.TB)
	// Break ends the connections of all open streams, as a network does.
	Break func(t testing.TB)
	// Lose makes the position of the source be lost while no stream is open, and
	// LostState is what it is called then. nil skips what needs it.
	Lose      func(t testing.TB)
	LostState cdc.State
	// Shared says that several streams may be open at once.
	Shared bool
	// Changes are made one after the other to a database that is read, each
	// between transactions that insert: columns of the outbox and of other tables
	// added, dropped and moved, tables recreated.
	Changes []Change
}

// Tx is an open transaction of an application.
type Tx interface {
	// Insert inserts n events with one statement, or one each, and returns their
	// ids in the order in which the log has them.
	Insert(t testing.TB, n int) []int64
	// Savepoint and RollbackTo are of one savepoint.
	Savepoint(t testing.TB)
	RollbackTo(t testing.TB)
	Commit(t testing.TB)
	Rollback(t testing.TB)
}

// Change is a change of the schema.
type Change struct {
	Name string
	Make func(t testing.TB)
}
