package sqlite_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/waybillhq/waybill/store/sqlite"
	"github.com/waybillhq/waybill/store/storetest"
)

const scanned = "SCAN p" // and so on: a whole table

// hotPlans says how the hot statements must run. MULTI-INDEX OR, for a key, is
// one search by each of two indexes.
var hotPlans = map[storetest.HotStatement]struct {
	statement    string
	uses, avoids []string
}{
	storetest.HotWalk:     {"walk", []string{"outbox_pending_hot (lane=? AND id>?)"}, []string{"TEMP B-TREE", scanned}},
	storetest.HotLoad:     {"load", []string{"SEARCH p USING INTEGER PRIMARY KEY", "SEARCH e USING INTEGER PRIMARY KEY"}, []string{"TEMP B-TREE", scanned}},
	storetest.HotFetchKey: {"fetch key", []string{"outbox_pending_key (key_hash=? AND id>?)"}, []string{"TEMP B-TREE", scanned}},
	storetest.HotFetchDue: {"fetch due", []string{"outbox_pending_due (lane=? AND next_retry_at<?)"}, []string{scanned}},
	storetest.HotHeldKeys: {"held keys", []string{"outbox_pending_held (lane=?)"}, []string{scanned}},
	storetest.HotFrontier: {"frontier", []string{"SEARCH outbox_event"}, []string{"SCAN"}},
	storetest.HotSettle:   {"apply: delete settled", []string{"outbox_pending USING INTEGER PRIMARY KEY"}, []string{"SCAN outbox_pending"}},
	storetest.HotCleanup:  {"cleanup: choose", []string{"outbox_receipt_published (published_at<?)"}, []string{"TEMP B-TREE", "SCAN r"}},
	storetest.HotFindID:   {"find by event id", []string{"sqlite_autoindex_outbox_event_1 (event_id=?"}, []string{"SCAN e"}},
	storetest.HotFindKey: {
		"find by key",
		[]string{"MULTI-INDEX OR", "outbox_event_aggregate (aggregate_id=?)", "outbox_event_key (event_key=?"},
		[]string{"SCAN e"},
	},
	storetest.HotKeysHeld:   {"keys held: key", []string{"held_event_key (consumer_group=? AND topic=? AND event_key=?)"}, []string{"SCAN held_event"}},
	storetest.HotHeldOfKey:  {"held of key", []string{"held_event_key (consumer_group=? AND topic=? AND event_key=?)"}, []string{"TEMP B-TREE", "SCAN held_event"}},
	storetest.HotReleasable: {"releasable keys", []string{"held_event_state (consumer_group=? AND state=?", "held_event_key"}, []string{"SCAN held_event"}},
	storetest.HotNextRetry:  {"next retry", []string{"held_event_state (consumer_group=? AND state=?"}, []string{"SCAN held_event"}},
}

func explain(ctx context.Context, st *sqlite.Store, hot storetest.HotStatement) (storetest.Plan, error) {
	switch hot {
	case storetest.HotMark:
		return storetest.Plan{Why: "an INSERT of one row has no plan in SQLite"}, nil
	case storetest.HotWalkQueue:
		return storetest.Plan{Why: "there is none: a walk goes lane by lane"}, nil
	case storetest.HotLoadRange, storetest.HotLoadDense, storetest.HotReceipts, storetest.HotForget:
		return storetest.Plan{Why: "ids are looked up one by one, close together or not"}, nil
	}
	want, ok := hotPlans[hot]
	if !ok {
		return storetest.Plan{}, fmt.Errorf("no statement is known for %q", hot)
	}
	if _, err := st.DB().ExecContext(ctx, "ANALYZE"); err != nil {
		return storetest.Plan{}, err
	}
	text := ""
	for _, statement := range append(st.Statements(), sqlite.FindStatements(st)...) {
		if statement.Name == want.statement {
			text = statement.Text
		}
	}
	plan, err := queryPlan(ctx, st, text)
	return storetest.Plan{Text: plan, Uses: want.uses, Avoids: want.avoids}, err
}

func queryPlan(ctx context.Context, st *sqlite.Store, statement string) (string, error) {
	args := make([]any, 8) // NULL: the plan does not depend on values
	rows, err := st.DB().QueryContext(ctx, "EXPLAIN QUERY PLAN "+statement, args...)
	if err != nil {
		return "", err
	}
	defer rows.Close()
	var plan strings.Builder
	for rows.Next() {
		var id, parent, unused int
		var detail string
		if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
			return "", err
		}
		plan.WriteString(detail + "\n")
	}
	return plan.String(), rows.Err()
}
