package accounts

import (
	"fmt"
	"testing"
	"time"

	"github.com/waybillhq/waybill/reconcile"
)

// TestALateCommitIsNoFinding has a transaction that wrote its row and event half
// a minute ago: open, then committed, then sent, then applied.
func TestALateCommitIsNoFinding(t *testing.T) {
	eachPair(t, func(t *testing.T, write, read reconcile.Database) {
		s := newSlow(t, write, read)
		for version := 1; version <= 2; version++ {
			exec(t, write, fmt.Sprintf("INSERT INTO l VALUES ('k', 's%[1]d', %[1]d, 'SENT', '2026-01-01 00:00:00')", version))
		}
		exec(t, write, "INSERT INTO w VALUES ('k', 's2', 2)")
		exec(t, read, "INSERT INTO r VALUES ('k', 's2', 2)")
		sees := func(when, want string) {
			t.Helper()
			report := run(t, s.check, write, read)
			if got := listed(report); got != want || report.Keys < 1 || !report.Coverage.Complete {
				t.Errorf("%s: got %q, want %q\n%s", when, got, want, report.Text())
			}
		}
		sees("before", "")
		tx, err := write.DB.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		began := time.Now().UTC().Add(-30 * time.Second).Format("2006-01-02 15:04:05")
		for _, statement := range []string{
			"UPDATE w SET status = 's3', version = 3 WHERE id = 'k'",
			"INSERT INTO w VALUES ('new', 's1', 1)",
			"INSERT INTO l VALUES ('k', 's3', 3, 'PENDING', '" + began + "')",
			"INSERT INTO l VALUES ('new', 's1', 1, 'PENDING', '" + began + "')",
		} {
			if _, err := tx.ExecContext(t.Context(), statement); err != nil {
				t.Fatal(err)
			}
		}
		sees("open", "")
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		sees("committed", "IN_FLIGHT k\nIN_FLIGHT new\n")
		exec(t, write, "UPDATE l SET state = 'SENT'")
		sees("sent", "IN_FLIGHT k\nIN_FLIGHT new\n")
		exec(t, read, "UPDATE r SET status = 's3', version = 3", "INSERT INTO r VALUES ('new', 's1', 1)")
		sees("applied", "")
	})
}
