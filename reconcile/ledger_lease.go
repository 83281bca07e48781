package reconcile

import (
	"context"
	"fmt"
	"time"

	"github.com/waybillhq/waybill"
)

const insertLeaseSQL = `
INSERT INTO {lease} (check_name, owner, fence, expires_at)
VALUES (?, '', 0, {now})`

// takeLeaseSQL takes a lease that has ended.
const takeLeaseSQL = `
UPDATE {lease}
SET owner = ?, fence = fence + 1, expires_at = {later}
WHERE check_name = ? AND expires_at <= {now}`

const selectLeaseSQL = `
SELECT owner, fence, expires_at
FROM {lease}
WHERE check_name = ?`

// Acquire implements [Results].
func (l *Ledger) Acquire(ctx context.Context, check, owner string, ttl time.Duration) (Lease, error) {
	lease := Lease{Check: check, Owner: owner, TTL: ttl}
	fail := func(err error) (Lease, error) { return Lease{}, l.failed("begin run", check, err) }
	if err := l.insertOnce(ctx, insertLeaseSQL, check); err != nil {
		return fail(err)
	}
	if _, err := l.exec(ctx, l.db.DB, takeLeaseSQL, owner, ttl.Microseconds(), check); err != nil {
		return fail(err)
	}
	var holder string
	var until time.Time
	err := l.rows(ctx, l.db.DB, selectLeaseSQL, []any{check}, func(r *ledgerRow) error {
		holder, lease.Fence, until = r.text(), r.number(), r.time()
		return nil
	})
	switch {
	case err != nil:
		return fail(err)
	case holder != owner:
		return Lease{}, &waybill.Error{
			Op: "begin run", Key: check, Err: fmt.Errorf("%w by %s", ErrRunning, holder),
			Hint: "wait for it; if its process is gone, its lease ends by itself at " + moment(until),
		}
	}
	return lease, nil
}

// holdLeaseSQL prolongs a lease that lives, and keeps it locked to the end of
// the transaction.
const holdLeaseSQL = `
UPDATE {lease}
SET expires_at = {later}
WHERE check_name = ? AND owner = ? AND fence = ? AND expires_at > {now}`

// Renew implements [Results].
func (l *Ledger) Renew(ctx context.Context, lease Lease) error {
	return l.failed("renew lease", lease.Check, l.hold(ctx, l.db.DB, lease))
}

func (l *Ledger) hold(ctx context.Context, x executor, lease Lease) error {
	n, err := l.exec(ctx, x, holdLeaseSQL, lease.TTL.Microseconds(), lease.Check, lease.Owner, lease.Fence)
	if err == nil && n == 0 {
		err = ErrLeaseLost
	}
	return err
}

const releaseLeaseSQL = `
UPDATE {lease}
SET expires_at = {now}
WHERE check_name = ? AND owner = ? AND fence = ?`

// Release implements [Results].
func (l *Ledger) Release(ctx context.Context, lease Lease) error {
	_, err := l.exec(ctx, l.db.DB, releaseLeaseSQL, lease.Check, lease.Owner, lease.Fence)
	return l.failed("end run", lease.Check, err)
}
