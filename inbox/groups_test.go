package inbox

import (
	"context"
	"maps"
	"testing"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store/memstore"
)

// Three groups share a database. What one order goes through is two events, even
// where both say that it came to an end; each group has each of them once.
func TestGroupsApplyEachEventOfAnOrderOnce(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		groups := []string{"inventory", "points", "notification"}
		for _, group := range groups {
			config := r.config()
			config.Group = group
			r.start(func(ctx context.Context, tx *memstore.Tx, e waybill.Event) error {
				return tx.Update(ctx, "effects", group+" "+e.Type, func(old string, _ bool) string { return old + "x" })
			}, config)
		}
		paid, cancelled := ev("O-1", 1), ev("O-1", 2)
		paid.Type, cancelled.Type = "OrderPaid", "OrderCancelled"
		for range 3 {
			r.publish(paid, cancelled, paid)
		}
		want := make(map[string]string)
		for _, group := range groups {
			r.until("lag 0 of "+group, func() bool { return r.b.Lag(group, topic) == 0 })
			want[group+" OrderPaid"], want[group+" OrderCancelled"] = "x", "x"
		}
		if got := r.st.Rows("effects"); !maps.Equal(got, want) {
			t.Errorf("effects %v, want %v", got, want)
		}
		for _, e := range []waybill.Event{paid, cancelled} {
			rows, err := r.st.FindConsumed(t.Context(), e.ID)
			if err != nil || len(rows) != len(groups) {
				t.Errorf("%s is consumed by %d groups, %v; want %d", e.Type, len(rows), err, len(groups))
			}
		}
		if n, want := r.said("duplicate"), 3*7; n != want {
			t.Errorf("%d duplicates, want %d", n, want)
		}
	})
}
