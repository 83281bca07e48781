// Package storetest is the conformance suite of the stores: what it demands is
// what the rest of the module relies on.
//
// A store's own test describes itself with a [Harness] and calls [Run]:
//
//	func TestConformance(t *testing.T) {
//		storetest.Run(t, storetest.Harness[pgx.Tx]{Open: open})
//	}
//
// Every case runs on an empty database, once with the queue trigger and once
// without. What a database cannot do by its nature is named in [Exceptions]
// with a sentence that says why; the cases that need it are skipped with that
// sentence.
//
// [RunModel] drives a store side by side with the store in memory, by random
// operations. [Bench] measures.
package storetest
