package reconcile_test

import (
	"fmt"
	"time"

	"github.com/waybillhq/waybill/reconcile"
)

func ExampleJudge() {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	rules := &reconcile.Rules{
		HasWrite: true, HasLog: true, HasRead: true,
		Exemption: 10 * time.Minute, Deadline: time.Minute, Now: now,
	}
	facts := &reconcile.Facts{
		Write: &reconcile.Row{Version: 2},
		Log: []reconcile.Event{
			{ID: "E-1", Version: 1, State: reconcile.StateSent, CreatedAt: now.Add(-2 * time.Hour)},
			{ID: "E-2", Version: 2, State: reconcile.StatePending, CreatedAt: now.Add(-time.Hour)},
		},
	}
	write, read := reconcile.Judge(facts, rules)
	fmt.Println(write.Class, write.Causes[0].Text)
	fmt.Println(read.Class, read.Causes[0].Text)
	// Output:
	// MISSING_EVENT E-2 v2 is pending since 2026-03-01T11:00:00Z
	// MISMATCH_READ the log is at v1 (E-1), the read model has no row
}

func ExampleNew() {
	check := reconcile.Check{
		Name: "loans",
		Key:  []reconcile.KeyPart{{Name: "loan_id"}},
		Write: &reconcile.Table{
			Database: "library", Table: "biz_loan", Version: "version",
		},
		Log: &reconcile.Log{
			Table: reconcile.Table{Database: "archive", Table: "outbox", Version: "version"},
			State: "state",
		},
		Compare: []reconcile.Column{{Name: "status"}},
	}
	_, err := reconcile.New(check, nil, nil)
	fmt.Println(err)
	// Output:
	// check loans: write and log are in two databases, so no snapshot covers both: say split: true to accept that
}
