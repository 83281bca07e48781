package strategies

import (
	"context"
	"database/sql"
	"encoding/json"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/inbox"
	"github.com/waybillhq/waybill/inbox/guard"
)

var profiles = guard.Versioned{Table: "profile", Key: "customer", Version: "version"}

// KeepNewest keeps a copy of a customer's profile, which each event has whole.
func KeepNewest(ctx context.Context, tx *sql.Tx, e waybill.Event) error {
	var p struct{ Name, City string }
	if err := json.Unmarshal(e.Data, &p); err != nil {
		return inbox.Dead(err)
	}
	_, err := profiles.Put(ctx, guard.Over(tx, guard.SQLite), e.AggregateID, e.AggregateVersion, guard.Row{"name": p.Name, "city": p.City})
	return err
}
