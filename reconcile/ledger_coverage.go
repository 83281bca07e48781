package reconcile

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
)

const selectCoverageSQL = `
SELECT kind, definition, covered_from, covered_until
FROM {coverage}
WHERE check_name = ?
ORDER BY kind`

func (l *Ledger) coverage(ctx context.Context, check string) ([]CoverageRecord, error) {
	covered := []CoverageRecord{}
	err := l.rows(ctx, l.db.DB, selectCoverageSQL, []any{check}, func(r *ledgerRow) error {
		covered = append(covered, CoverageRecord{Kind: Mode(r.text()), Definition: r.text(), From: r.timeOrNil(), Until: r.time()})
		return nil
	})
	return covered, l.failed("read coverage", check, err)
}

const deleteCoverageSQL = `
DELETE FROM {coverage}
WHERE check_name = ? AND kind = ?`

const insertCoverageSQL = `
INSERT INTO {coverage} (check_name, kind, definition, covered_from, covered_until, updated_at)
VALUES (?, ?, ?, ?, ?, {now})`

func (l *Ledger) recordCoverage(ctx context.Context, tx executor, o *Outcome) error {
	for _, c := range o.Coverage {
		if _, err := l.exec(ctx, tx, deleteCoverageSQL, o.Run.Check, c.Kind); err != nil {
			return err
		}
		if _, err := l.exec(ctx, tx, insertCoverageSQL, o.Run.Check, c.Kind, c.Definition, c.From, c.Until); err != nil {
			return err
		}
	}
	return nil
}

const selectBehindSQL = `
SELECT stored_key, since, read_version, sent_version
FROM {behind}
WHERE check_name = ?`

func (l *Ledger) behind(ctx context.Context, check string) ([]BehindRecord, error) {
	var all []BehindRecord
	err := l.rows(ctx, l.db.DB, selectBehindSQL, []any{check}, func(r *ledgerRow) error {
		all = append(all, BehindRecord{StoredKey: r.text(), Since: r.time(), ReadVersion: r.number(), SentVersion: r.number()})
		return nil
	})
	return all, l.failed("read what is behind", check, err)
}

const deleteBehindSQL = `
DELETE FROM {behind}
WHERE check_name = ? AND id IN (%s)`

const insertBehindSQL = `
INSERT INTO {behind} (check_name, id, stored_key, since, read_version, sent_version)
VALUES (?, ?, ?, ?, ?, ?)`

func (l *Ledger) recordBehind(ctx context.Context, tx executor, o *Outcome) error {
	var gone []any
	for _, key := range o.Caught {
		gone = append(gone, behindID(key))
	}
	for i := range o.Behind {
		gone = append(gone, behindID(o.Behind[i].StoredKey))
	}
	for some := range slices.Chunk(gone, atOnce) {
		if _, err := l.exec(ctx, tx, fmt.Sprintf(deleteBehindSQL, places(len(some))), append([]any{o.Run.Check}, some...)...); err != nil {
			return err
		}
	}
	for i := range o.Behind {
		b := &o.Behind[i]
		if _, err := l.exec(ctx, tx, insertBehindSQL, o.Run.Check, behindID(b.StoredKey), b.StoredKey, b.Since, b.ReadVersion, b.SentVersion); err != nil {
			return err
		}
	}
	return nil
}

// behindID stands for a key that may be too long for an index.
func behindID(storedKey string) string {
	sum := sha256.Sum256([]byte(storedKey))
	return hex.EncodeToString(sum[:16])
}
