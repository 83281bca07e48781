package memstore

import (
	"bytes"
	"context"

	"github.com/waybillhq/waybill/store"
)

type aggregate struct{ tenantID, kind, id string }

// setHead keeps the event if it is newer than the head of its aggregate. Of one
// version the lowest id stays.
func (o *outboxTables) setHead(row eventRow) {
	e := &row.event
	key := aggregate{e.TenantID, e.AggregateType, e.AggregateID}
	old, found := o.heads[key]
	if e.AggregateVersion == 0 || found && (old.Version > e.AggregateVersion || old.Version == e.AggregateVersion && old.OutboxID <= row.id) {
		return
	}
	o.heads[key] = store.Head{
		TenantID: e.TenantID, AggregateType: e.AggregateType, AggregateID: e.AggregateID,
		Version: e.AggregateVersion, EventID: e.ID, OutboxID: row.id, EventType: e.Type,
		Data: bytes.Clone(e.Data), CreatedAt: row.createdAt,
	}
}

// Head returns the head of an aggregate.
func (s *Store) Head(ctx context.Context, tenantID, aggregateType, aggregateID string) (head store.Head, found bool, err error) {
	err = s.call(ctx, "read head", func() error {
		if !s.made || !s.meta.Head {
			return store.ErrNoSchema
		}
		head, found = s.outbox.heads[aggregate{tenantID, aggregateType, aggregateID}]
		head.Data = bytes.Clone(head.Data)
		return nil
	})
	return head, found, err
}
