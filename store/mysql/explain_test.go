package mysql_test

import (
	"context"
	"database/sql"
	"strings"

	"github.com/waybillhq/waybill/store/mysql"
	"github.com/waybillhq/waybill/store/storetest"
)

// explained is a hot statement with parameters as a relay or consumer gives them.
type explained struct {
	role, name string
	args       []any
	ids        string   // that the store writes into it
	suffix     string   // what the store adds at run time
	uses       []string // "table access index"
	avoids     []string
	why        string
}

const (
	allLanesJSON = `[0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31,` +
		`32,33,34,35,36,37,38,39,40,41,42,43,44,45,46,47,48,49,50,51,52,53,54,55,56,57,58,59,60,61,62,63]`
	sorted = "filesort"
	scanP  = "p ALL"
	scanE  = "e ALL"
)

var hotStatements = map[storetest.HotStatement]explained{
	storetest.HotWalk: {uses: []string{"p range hot Using where; Using index"}, avoids: []string{sorted, scanP}},
	storetest.HotWalkQueue: {
		role: "queue", name: "walk queue", args: []any{2400, 1000},
		uses: []string{"p range PRIMARY"}, avoids: []string{sorted, scanP},
	},
	storetest.HotLoad: {
		role: "load", name: "load", ids: "2400,2401,2402,2410,2500,2600",
		uses: []string{"p range PRIMARY", "e eq_ref PRIMARY"}, avoids: []string{sorted, scanP, scanE},
	},
	storetest.HotLoadRange: {
		role: "load", name: "load range", args: []any{2400, 2600},
		uses: []string{"p range PRIMARY", "e eq_ref PRIMARY"}, avoids: []string{sorted, scanP, scanE},
	},
	storetest.HotFetchKey: {
		role: "load", name: "fetch key", args: []any{int64(12345), int64(0), 3, false, 101},
		uses: []string{"p range by_key", "e eq_ref PRIMARY"}, avoids: []string{sorted, scanP, scanE},
	},
	storetest.HotFetchDue: {
		role: "queue", name: "fetch due", args: []any{1000}, ids: strings.Trim(allLanesJSON, "[]"),
		uses: []string{"q range due"}, avoids: []string{"q ALL", scanP, scanE},
	},
	storetest.HotHeldKeys: {
		role: "queue", name: "held keys", args: []any{allLanesJSON},
		uses: []string{"p ref hot", "e eq_ref PRIMARY"}, avoids: []string{scanP, scanE},
	},
	storetest.HotFrontier: {role: "frontier", name: "frontier", uses: []string{"Select tables optimized away"}, avoids: []string{"ALL"}},
	storetest.HotSettle: {
		role: "apply", name: "delete queued", args: []any{"[2400,2401,2402,2410,2500,2600]"},
		uses: []string{"p eq_ref PRIMARY"}, avoids: []string{scanP},
	},
	storetest.HotLoadDense: {why: "a range is loaded where nearly all of it is wanted, and only there"},
	storetest.HotReceipts:  {why: "it is an INSERT of values"},
	storetest.HotForget: {
		role: "apply", name: "delete events", args: []any{"[2400,2401,2402,2410,2500,2600]"},
		uses: []string{"e eq_ref PRIMARY"}, avoids: []string{scanE},
	},
	storetest.HotCleanup: {
		role: "cleanup", name: "choose settled", args: []any{int64(30 * 24 * 3600 * 1e6), 0, 0, 1000},
		uses: []string{"r range published"}, avoids: []string{sorted, "r ALL", scanP},
	},
	storetest.HotFindID: {
		role: "inspect", name: "find ids", suffix: " AND e.id > ? ORDER BY e.id LIMIT ?", args: []any{`["event-0001"]`, 0, 100},
		uses: []string{"e eq_ref event_id"}, avoids: []string{scanE, scanP},
	},
	storetest.HotFindKey: {
		role: "inspect", name: "find key", suffix: " AND (e.aggregate_id = ? OR e.event_key = ?) AND e.id > ? ORDER BY e.id LIMIT ?",
		args: []any{"key-7", "key-7", "key-7", "key-7", 0, 100},
		uses: []string{" aggregate ", " event_key "}, avoids: []string{scanE, scanP},
	},
	storetest.HotMark: {why: "it is an INSERT of one row, whose conflict is found by the primary key"},
	storetest.HotKeysHeld: {
		role: "held", name: "keys held", args: []any{`[["orders","key-7"]]`, "stock"},
		uses: []string{"h ref event_key"}, avoids: []string{"h ALL"},
	},
	storetest.HotHeldOfKey: {
		role: "held", name: "held of key", args: []any{"stock", "orders", "key-7", 10},
		uses: []string{"held_event ref event_key"}, avoids: []string{sorted, "held_event ALL"},
	},
	storetest.HotReleasable: {
		role: "heldreader", name: "releasable keys", args: []any{"stock", "stock", "stock", true, 100},
		uses: []string{"h range state", "h ref state", "h ref event_key"}, avoids: []string{"h ALL"},
	},
	storetest.HotNextRetry: {
		role: "heldreader", name: "next retry", args: []any{"stock"},
		uses: []string{"Select tables optimized away"}, avoids: []string{"held_event ALL"},
	},
}

func analyze(ctx context.Context, st *mysql.Store) error {
	_, err := st.DB().ExecContext(ctx, "ANALYZE TABLE outbox_event, outbox_pending, outbox_receipt, held_event")
	return err
}

// explain prints one line for each table of the plan: alias, access, index, remarks.
func explain(ctx context.Context, st *mysql.Store, hot storetest.HotStatement) (storetest.Plan, error) {
	e := hotStatements[hot]
	plan := storetest.Plan{Why: e.why, Uses: e.uses, Avoids: e.avoids}
	if e.why != "" {
		return plan, nil
	}
	var text string
	args := e.args
	if hot == storetest.HotWalk {
		text, args = st.WalkText(1001)
	} else {
		text = strings.Replace(st.Text(e.role, e.name), "{ids}", e.ids, 1)
	}
	rows, err := st.DB().QueryContext(ctx, "EXPLAIN FORMAT=TRADITIONAL "+text+e.suffix, args...)
	if err != nil {
		return plan, err
	}
	defer func() { _ = rows.Close() }()
	columns, err := rows.Columns()
	if err != nil {
		return plan, err
	}
	for rows.Next() {
		values := make([]sql.NullString, len(columns))
		targets := make([]any, len(columns))
		named := make(map[string]*sql.NullString, len(columns))
		for i := range values {
			targets[i], named[columns[i]] = &values[i], &values[i]
		}
		if err := rows.Scan(targets...); err != nil {
			return plan, err
		}
		plan.Text += strings.Join([]string{named["table"].String, named["type"].String, named["key"].String, named["Extra"].String}, " ") + "\n"
	}
	return plan, rows.Err()
}
