package postgres_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/waybillhq/waybill/store/storetest"
)

// With the statistics of an empty queue all plans look equally cheap, and a
// prepared statement keeps its plan. Each hot statement must choose its index
// for its shape then, not for its price.
func TestPlansMadeOverEmptyTablesAreTheRightOnes(t *testing.T) {
	st := openStore(t, freshSchema(t), storetest.Options{})
	if _, err := st.Pool().Exec(t.Context(), "ANALYZE outbox_event, outbox_pending, outbox_receipt, held_event"); err != nil {
		t.Fatal(err)
	}
	for name, index := range map[storetest.HotStatement]string{
		storetest.HotWalk:      "outbox_pending_hot",
		storetest.HotWalkQueue: "outbox_pending_pkey",
		storetest.HotLoad:      "outbox_event_pkey",
		storetest.HotLoadRange: "outbox_event_pkey",
		storetest.HotFetchKey:  "outbox_pending_key",
		storetest.HotFetchDue:  "outbox_pending_due",
		storetest.HotHeldKeys:  "outbox_pending_held",
		storetest.HotSettle:    "outbox_pending_pkey",
		storetest.HotHeldOfKey: "held_event_key",
		storetest.HotKeysHeld:  "held_event_key",
	} {
		t.Run(string(name), func(t *testing.T) {
			e := hotStatements[name]
			var plan string
			err := pgx.BeginFunc(t.Context(), st.Pool(), func(tx pgx.Tx) error {
				settings := st.Text("queue", "read settings")
				if e.settings == "merge settings" {
					settings = st.Text("load", e.settings)
				}
				if _, err := tx.Exec(t.Context(), settings); err != nil {
					return err
				}
				run(t, tx, "SET LOCAL plan_cache_mode = force_generic_plan")
				run(t, tx, "PREPARE hot AS "+st.Text(e.role, e.name))
				defer run(t, tx, "DEALLOCATE hot")
				nulls := strings.TrimSuffix(strings.Repeat("NULL, ", len(e.args)), ", ")
				rows, err := tx.Query(t.Context(), fmt.Sprintf("EXPLAIN (COSTS OFF) EXECUTE hot(%s)", nulls))
				if err != nil {
					return err
				}
				lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
				plan = strings.Join(lines, "\n")
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(plan, index+" ") {
				t.Errorf("%s is not used:\n%s", index, plan)
			}
		})
	}
}
