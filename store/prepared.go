package store

import "context"

// PreparedTransaction is one that was prepared for a commit in two phases and
// waits for its coordinator, also after the end of its session. Until then no event
// up to those that were inserted beside it is out of doubt: a [Frontier] does not
// close.
type PreparedTransaction struct {
	// Name is the coordinator's, as a person reads it. It is empty where the account
	// may only see that there is one.
	Name string
	// Commit and Rollback are the statements that end it.
	Commit, Rollback string
}

// PreparedLister is implemented by a store whose database knows prepared
// transactions. It takes no locks.
type PreparedLister interface {
	// ListPrepared returns the server's prepared transactions. What the account may
	// not see is left out.
	ListPrepared(ctx context.Context) ([]PreparedTransaction, error)
}
