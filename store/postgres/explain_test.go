package postgres_test

import (
	"context"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/waybillhq/waybill/store/postgres"
	"github.com/waybillhq/waybill/store/storetest"
)

// explained is a hot statement with parameters as a relay or consumer gives them.
type explained struct {
	role, name string
	args       []any
	suffix     string // what the store adds at run time
	uses       []string
	avoids     []string
	settings   string // statement whose settings it runs with
	why        string
}

var (
	allLanes = func() []int16 {
		lanes := make([]int16, 64)
		for i := range lanes {
			lanes[i] = int16(i)
		}
		return lanes
	}()
	someIDs = []int64{2400, 2401, 2402, 2410, 2500, 2600}
)

const noScanOfQueue, noScanOfEvents = "Seq Scan on outbox_pending", "Seq Scan on outbox_event"

var hotStatements = map[storetest.HotStatement]explained{
	storetest.HotWalk: {
		role: "queue", name: "walk", settings: "read settings",
		args:   []any{allLanes, make([]int64, 64), slices.Repeat([]int64{16}, 64), []int64{}, int64(1001)},
		uses:   []string{"outbox_pending_hot"},
		avoids: []string{noScanOfQueue, "Sort", "Bitmap"},
	},
	storetest.HotWalkQueue: {
		role: "queue", name: "walk queue", settings: "read settings",
		args:   []any{int64(2400), int64(1000)},
		uses:   []string{"outbox_pending_pkey"},
		avoids: []string{noScanOfQueue, "Sort", "Bitmap"},
	},
	storetest.HotLoad: {
		role: "load", name: "load", settings: "read settings",
		args:   []any{someIDs},
		uses:   []string{"outbox_pending_pkey", "outbox_event_pkey"},
		avoids: []string{noScanOfQueue, noScanOfEvents, "Hash", "Merge"},
	},
	storetest.HotLoadRange: {
		role: "load", name: "load range", settings: "merge settings",
		args:   []any{someIDs, int64(2400), int64(2600)},
		uses:   []string{"outbox_pending_pkey", "outbox_event_pkey", "Merge Join"},
		avoids: []string{noScanOfQueue, noScanOfEvents, "Hash", "Nested"},
	},
	storetest.HotLoadDense: {
		role: "load", name: "load dense", settings: "merge settings",
		args:   []any{int64(2400), int64(2600)},
		uses:   []string{"outbox_pending_pkey", "outbox_event_pkey", "Merge Join"},
		avoids: []string{noScanOfQueue, noScanOfEvents, "Hash", "Nested", "Sort"},
	},
	storetest.HotFetchKey: {
		role: "load", name: "fetch key", settings: "read settings",
		args:   []any{int64(12345), int64(0), false, int64(101), int16(3)},
		uses:   []string{"outbox_pending_key", "outbox_event_pkey"},
		avoids: []string{noScanOfQueue, noScanOfEvents},
	},
	storetest.HotFetchDue: {
		role: "queue", name: "fetch due", settings: "read settings",
		args:   []any{allLanes, int64(1000)},
		uses:   []string{"outbox_pending_due"},
		avoids: []string{noScanOfQueue},
	},
	storetest.HotHeldKeys: {
		role: "queue", name: "held keys", settings: "read settings",
		args:   []any{allLanes},
		uses:   []string{"outbox_pending_held"},
		avoids: []string{noScanOfQueue},
	},
	storetest.HotFrontier: {
		role: "queue", name: "frontier",
		uses:   []string{"outbox_event_pkey"},
		avoids: []string{noScanOfEvents},
	},
	storetest.HotSettle: {
		role: "apply", name: "dequeue", settings: "settle settings",
		args:   []any{someIDs},
		uses:   []string{"outbox_pending_pkey"},
		avoids: []string{noScanOfQueue},
	},
	storetest.HotReceipts: {
		role: "apply", name: "insert receipts", settings: "merge settings",
		args:   []any{someIDs, texts("event"), texts("orders[0]@1"), "SENT", "poll", "", int64(2400), int64(2600)},
		uses:   []string{"outbox_event_pkey", "Merge Join"},
		avoids: []string{noScanOfEvents, "Hash", "Nested"},
	},
	storetest.HotForget: {
		role: "apply", name: "forget events", settings: "merge settings",
		args:   []any{someIDs, texts("event"), int64(2400), int64(2600)},
		uses:   []string{"outbox_event_pkey", "Merge Join"},
		avoids: []string{noScanOfEvents, "Hash", "Nested"},
	},
	storetest.HotCleanup: {
		role: "cleanup", name: "lock settled",
		args:   []any{int64(30 * 24 * 3600 * 1e6), int64(0), int64(1000)},
		uses:   []string{"outbox_receipt_published", "outbox_event_pkey"},
		avoids: []string{"Seq Scan on outbox_receipt", noScanOfEvents},
	},
	storetest.HotFindID: {
		role: "inspect", name: "find",
		suffix: " AND e.event_id = ANY ($1::text[]) AND e.id > $2 ORDER BY e.id LIMIT 100",
		args:   []any{[]string{"event-0001"}, int64(0)},
		uses:   []string{"outbox_event_event_id"},
		avoids: []string{noScanOfEvents, noScanOfQueue},
	},
	storetest.HotFindKey: {
		role: "inspect", name: "find",
		suffix: " AND (e.aggregate_id = $1 OR e.event_key = $1 AND e.event_key <> e.aggregate_id) AND e.id > $2 ORDER BY e.id LIMIT 100",
		args:   []any{"key-7", int64(0)},
		uses:   []string{"outbox_event_aggregate", "outbox_event_key"},
		avoids: []string{noScanOfEvents},
	},
	storetest.HotMark: {why: "it is an INSERT of one row, whose conflict is found by the primary key"},
	storetest.HotKeysHeld: {
		role: "held", name: "keys held",
		args:   []any{"stock", texts("orders"), texts("key-7")},
		uses:   []string{"held_event_key"},
		avoids: []string{"Seq Scan on held_event"},
	},
	storetest.HotHeldOfKey: {
		role: "held", name: "held of key",
		args:   []any{"stock", "orders", "key-7", int64(10)},
		uses:   []string{"held_event_key"},
		avoids: []string{"Seq Scan on held_event"},
	},
	storetest.HotReleasable: {
		role: "heldreader", name: "releasable keys", settings: "read settings",
		args:   []any{"stock", true, int64(100)},
		uses:   []string{"held_event_retry", "held_event_blocked"},
		avoids: []string{"Seq Scan on held_event"},
	},
	storetest.HotNextRetry: {
		role: "heldreader", name: "next retry",
		args:   []any{"stock"},
		uses:   []string{"held_event_retry"},
		avoids: []string{"Seq Scan on held_event"},
	},
}

func texts(text string) []string {
	same := make([]string, len(someIDs))
	for i := range same {
		same[i] = text
	}
	return same
}

func analyze(ctx context.Context, st *postgres.Store) error {
	_, err := st.Pool().Exec(ctx, "ANALYZE outbox_event, outbox_pending, outbox_receipt, held_event, consumed_event, consumer_key")
	return err
}

// explain asks for the plan in a transaction of its own.
func explain(ctx context.Context, st *postgres.Store, hot storetest.HotStatement) (storetest.Plan, error) {
	e := hotStatements[hot]
	plan := storetest.Plan{Why: e.why, Uses: e.uses, Avoids: e.avoids}
	if e.why != "" {
		return plan, nil
	}
	err := pgx.BeginFunc(ctx, st.Pool(), func(tx pgx.Tx) error {
		if e.settings != "" {
			role := map[string]string{"settle settings": "apply", "read settings": "queue", "merge settings": "load"}[e.settings]
			if _, err := tx.Exec(ctx, st.Text(role, e.settings)); err != nil {
				return err
			}
		}
		rows, err := tx.Query(ctx, "EXPLAIN (COSTS OFF) "+st.Text(e.role, e.name)+e.suffix, append([]any{pgx.QueryExecModeCacheDescribe}, e.args...)...)
		if err != nil {
			return err
		}
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		plan.Text = strings.Join(lines, "\n")
		return err
	})
	return plan, err
}
