package accounts

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/waybillhq/waybill/reconcile"
)

// loan is one of the loans of waybill lab loans.
type loan struct {
	id     string
	row    string // status and version, as "RETURNED 2"; empty: none
	events []string
	read   string
	waits  bool
}

var loans = []loan{
	{id: "L-1001", row: "RETURNED 2", events: []string{"ON_LOAN 1", "RETURNED 2"}, read: "RETURNED 2"},
	{id: "L-1002", row: "RETURNED 2", events: []string{"ON_LOAN 1"}, read: "ON_LOAN 1"},
	{id: "L-1003", events: []string{"ON_LOAN 1"}, read: "ON_LOAN 1"},
	{id: "L-1004", row: "OVERDUE 2", events: []string{"RETURNED 2"}, read: "RETURNED 2"},
	{id: "L-1005", row: "ON_LOAN 1", events: []string{"ON_LOAN 1"}, waits: true},
	{id: "L-1006", row: "RETURNED 2", events: []string{"ON_LOAN 1", "RETURNED 2"}, read: "OVERDUE 2"},
}

// The lab itself runs on SQLite; its findings are the same on every database.
func TestTheLoansHaveTheSameFindingsEverywhere(t *testing.T) {
	eachPair(t, func(t *testing.T, write, read reconcile.Database) {
		exec(t, write,
			"CREATE TABLE biz_loan (loan_id {text} NOT NULL PRIMARY KEY, status {text}, version INTEGER NOT NULL, updated_at {time})",
			"CREATE TABLE outbox (event_id {text} NOT NULL PRIMARY KEY, loan_id {text} NOT NULL, status {text}, version INTEGER NOT NULL, state {text}, created_at {time})")
		exec(t, read, "CREATE TABLE read_model_loan (loan_id {text} NOT NULL PRIMARY KEY, status {text}, version INTEGER NOT NULL, last_event_id {text}, updated_at {time})")
		ago := func(d time.Duration) string { return time.Now().UTC().Add(-d).Format("2006-01-02 15:04:05") }
		values := func(pair string) string { return "'" + strings.Replace(pair, " ", "', ", 1) }
		for _, l := range loans {
			if l.row != "" {
				exec(t, write, fmt.Sprintf("INSERT INTO biz_loan VALUES ('%s', %s, '%s')", l.id, values(l.row), ago(time.Hour)))
			}
			for i, e := range l.events {
				state, at := "SENT", ago(2*time.Hour)
				if l.waits {
					state, at = "PENDING", ago(2*time.Minute)
				}
				exec(t, write, fmt.Sprintf("INSERT INTO outbox VALUES ('E-%s-%d', '%s', %s, '%s', '%s')", l.id, i+1, l.id, values(e), state, at))
			}
			if l.read != "" {
				exec(t, read, fmt.Sprintf("INSERT INTO read_model_loan VALUES ('%s', %s, 'E-%s-%d', '%s')", l.id, values(l.read), l.id, len(l.events), ago(time.Hour)))
			}
		}
		check := &reconcile.Check{
			Name: "loans", Key: []reconcile.KeyPart{{Name: "loan_id"}}, Compare: []reconcile.Column{{Name: "status"}},
			Write: &reconcile.Table{Database: "write", Table: "biz_loan", Version: "version", UpdatedAt: "updated_at"},
			Log: &reconcile.Log{
				Table: reconcile.Table{Database: "write", Table: "outbox", Version: "version", EventID: "event_id"},
				State: "state", CreatedAt: "created_at",
			},
			Read:      &reconcile.Table{Database: "read", Table: "read_model_loan", Version: "version", EventID: "last_event_id", UpdatedAt: "updated_at"},
			Exemption: time.Hour, Deadline: 30 * time.Second, Confirm: []time.Duration{0},
		}
		const first = "MISSING_EVENT L-1002\nORPHAN_EVENT L-1003\nMISMATCH_WRITE L-1004\nMISMATCH_READ L-1006\nIN_FLIGHT L-1005\n"
		report := run(t, check, write, read)
		if got := listed(report); got != first || report.Differences != 4 || report.InFlight != 1 {
			t.Errorf("first report:\n%s", report.Text())
		}
		rebuilt, err := engine(t, check, write, read).Rebuild(t.Context(), nil)
		if err != nil || rebuilt.Rows != 5 || rebuilt.Written != 1 || len(rebuilt.Refused) > 0 {
			t.Errorf("rebuilt %+v, %v", rebuilt, err)
		}
		report = run(t, check, write, read)
		if got, want := listed(report), strings.Replace(first, "MISMATCH_READ L-1006\n", "", 1); got != want || report.Differences != 3 || report.InFlight != 1 {
			t.Errorf("second report:\n%s", report.Text())
		}

		// Past its exemption the waiting event counts as missing.
		check.Exemption = time.Minute
		if got := listed(run(t, check, write, read)); !strings.Contains(got, "MISSING_EVENT L-1005\n") {
			t.Errorf("past the exemption:\n%s", got)
		}
	})
}
