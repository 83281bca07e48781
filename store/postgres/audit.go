package postgres

import (
	"context"

	"github.com/waybillhq/waybill/store"
)

const recordSQL = `
INSERT INTO {audit} (actor, verb, target, reason, before, after) VALUES ($1, $2, $3, $4, $5, $6)`

// Record adds an entry to the audit.
func (t *inboxTx) Record(ctx context.Context, e store.AuditEntry) error {
	_, err := t.tx.Exec(ctx, t.store.sql(recordSQL), storable(e.Actor), e.Verb, storable(e.Target), storable(e.Reason), e.Before, e.After)
	return failure("record", e.Target, err)
}
