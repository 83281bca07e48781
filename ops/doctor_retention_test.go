package ops

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/waybillhq/waybill/broker"
	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/memstore"
)

// keeper is a broker that is well and keeps its records for some time.
type keeper struct{ kept time.Duration }

func (keeper) Check(context.Context, []string) []broker.Check { return nil }

func (k keeper) TopicRetention(context.Context, []string) (map[string]time.Duration, error) {
	return map[string]time.Duration{"orders": k.kept}, nil
}

func TestDoctorComparesRetentions(t *testing.T) {
	const day = 24 * time.Hour
	for name, c := range map[string]struct {
		inbox, kept time.Duration
		asked, ok   bool
	}{
		"long enough":        {22 * day, 7 * day, true, true},
		"too short":          {21 * day, 7 * day, true, false},
		"records for ever":   {1000 * day, 0, true, false},
		"consumers for ever": {0, 7 * day, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t, memstore.Config{})
			d.must(d.Migrate(t.Context(), store.MigrateOptions{}))
			diagnosis, err := Doctor(t.Context(), d.Store, &DoctorConfig{
				Checker: keeper{c.kept}, Topics: []string{"orders"}, InboxRetention: c.inbox, Inboxes: []Inbox{{Name: "inventory", Reader: d.Store}},
			})
			d.must(err)
			asked := false
			for _, e := range diagnosis.Examinations {
				if !strings.HasPrefix(e.Check, CheckRetention) {
					continue
				}
				asked = true
				if e.OK != c.ok || !e.OK && e.Hint == "" {
					t.Errorf("got %+v, want ok %t", e, c.ok)
				}
			}
			if asked != c.asked {
				t.Errorf("asked %t, want %t", asked, c.asked)
			}
		})
	}
}
