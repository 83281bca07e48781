package reconcile

import (
	"context"
	"time"
)

const selectAlertsSQL = `
SELECT name, firing, since, sent_at
FROM {alert}
WHERE check_name = ?`

// Told implements [AlertBook].
func (l *Ledger) Told(ctx context.Context, check string) (map[string]Told, error) {
	told := make(map[string]Told)
	err := l.rows(ctx, l.db.DB, selectAlertsSQL, []any{check}, func(r *ledgerRow) error {
		name := r.text()
		told[name] = Told{Firing: r.number() == 1, Since: r.time(), At: r.time()}
		return nil
	})
	return told, l.failed("read alerts", check, err)
}

const insertAlertSQL = `
INSERT INTO {alert} (check_name, name, firing, since, claimed_until)
VALUES (?, ?, 0, {now}, {now})`

// claimAlertSQL takes an alert of which nothing was told since it was read.
const (
	claimAlertSQL = `
UPDATE {alert}
SET claimed_until = {later}
WHERE check_name = ? AND name = ? AND claimed_until <= {now} AND sent_at = ?`
	claimFirstAlertSQL = `
UPDATE {alert}
SET claimed_until = {later}
WHERE check_name = ? AND name = ? AND claimed_until <= {now} AND sent_at IS NULL`
)

// Claim implements [AlertBook].
func (l *Ledger) Claim(ctx context.Context, check, name string, before Told, d time.Duration) (bool, error) {
	if err := l.insertOnce(ctx, insertAlertSQL, check, name); err != nil {
		return false, l.failed("claim alert", name, err)
	}
	query, args := claimFirstAlertSQL, []any{d.Microseconds(), check, name}
	if !before.At.IsZero() {
		query, args = claimAlertSQL, append(args, before.At)
	}
	n, err := l.exec(ctx, l.db.DB, query, args...)
	return n == 1, l.failed("claim alert", name, err)
}

const settleAlertSQL = `
UPDATE {alert}
SET firing = ?, since = ?, sent_at = ?, claimed_until = {now}
WHERE check_name = ? AND name = ?`

// Settle implements [AlertBook].
func (l *Ledger) Settle(ctx context.Context, check, name string, told Told) error {
	_, err := l.exec(ctx, l.db.DB, settleAlertSQL, told.Firing, told.Since, told.At, check, name)
	return l.failed("settle alert", name, err)
}
