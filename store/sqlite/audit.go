package sqlite

import (
	"context"

	"github.com/waybillhq/waybill/store"
)

// Record adds an entry to the audit.
func (t *inboxTx) Record(ctx context.Context, e store.AuditEntry) error {
	_, err := t.exec(ctx, recordSQL, e.Actor, e.Verb, e.Target, e.Reason, e.Before, e.After)
	return t.failed("record", e.Target, err)
}
