package mysql

import (
	"context"

	"github.com/waybillhq/waybill/store"
)

const recordSQL = "\nINSERT INTO {audit} (actor, verb, target, reason, `before`, `after`) VALUES (?, ?, ?, ?, ?, ?)"

// Record adds an entry to the audit.
func (t *inboxTx) Record(ctx context.Context, e store.AuditEntry) error {
	_, err := t.exec(ctx, recordSQL, short(e.Actor), e.Verb, short(e.Target), storable(e.Reason), e.Before, e.After)
	return t.failed("record", e.Target, err)
}
