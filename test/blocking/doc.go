// Package blocking shows that an application that appends events is neither
// blocked nor failed by what moves them: a relay whose broker is stalled,
// settling, forgetting, and cleanup.
//
// The tests compare no times. The application's sessions give up a lock after a
// second, so a wait for a transaction that stands still becomes an error. How
// long transactions take is measured by a benchmark, whose results are kept in
// the folder results:
//
//	go test -run '^$' -bench Application -benchtime 1x -timeout 20m ./blocking
//
// SQLite has one writer: an application waits there for each transaction of
// ours, and we for each of its own. What can be promised is that these are
// short, and that none is open while the broker is spoken to.
package blocking
