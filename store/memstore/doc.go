// Package memstore is a store in memory, for tests and for trying things out.
//
// It behaves like a database server with row locks at READ COMMITTED: ids are
// given when an event is inserted, so a transaction that commits late makes a
// lower id appear after a higher one; a rollback burns its ids; a second writer
// of the same row waits for the first; a circle of waiting transactions is
// broken with [ErrDeadlock]. It passes the suite of the package storetest, so
// what a test proves on it holds on a real store.
//
// A transaction is a [*Tx], opened with [Store.Begin] or by the inbox. Besides
// events it holds rows of the test's own ([Tx.Set], [Tx.Get]), which stand for
// business tables. [Store.SetError] makes operations fail as if the database
// were away, and [Store.SetLostAnswer] lets them succeed unheard.
//
// The store starts no goroutine and no timer, and waits on channels only: it
// works in a bubble of testing/synctest, where its clock is the bubble's.
package memstore
