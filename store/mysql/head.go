package mysql

import (
	"context"
	"strings"

	"github.com/waybillhq/waybill/store"
)

// A higher version replaces all, another nothing. The version comes last:
// assignments see what those before them have made of the row.
const (
	headInsert = `INSERT INTO {head} (tenant_id, aggregate_type, aggregate_id, aggregate_version,
                  event_id, outbox_id, event_type, payload, created_at)`

	headNewer = `ON DUPLICATE KEY UPDATE
    event_id = IF(VALUES(aggregate_version) > {head}.aggregate_version, VALUES(event_id), {head}.event_id),
    outbox_id = IF(VALUES(aggregate_version) > {head}.aggregate_version, VALUES(outbox_id), {head}.outbox_id),
    event_type = IF(VALUES(aggregate_version) > {head}.aggregate_version, VALUES(event_type), {head}.event_type),
    payload = IF(VALUES(aggregate_version) > {head}.aggregate_version, VALUES(payload), {head}.payload),
    created_at = IF(VALUES(aggregate_version) > {head}.aggregate_version, VALUES(created_at), {head}.created_at),
    aggregate_version = GREATEST({head}.aggregate_version, VALUES(aggregate_version))`

	headColumns = `n.tenant_id, n.aggregate_type, n.aggregate_id, n.aggregate_version, n.event_id, n.id, n.event_type, n.payload, n.created_at`

	// Two transactions that meet the same aggregates lock them in this order.
	headOrder = `ORDER BY n.aggregate_id, n.aggregate_type, n.tenant_id, n.aggregate_version DESC, n.id`
)

var putHead = strings.NewReplacer("{head_insert}", headInsert, "{head_newer}", headNewer)

// headNewSQL writes the heads of listed events where no trigger does.
const headNewSQL = headInsert + `
SELECT ` + headColumns + `
FROM ` + listedEventIDs + ` STRAIGHT_JOIN {event} n FORCE INDEX (event_id) ON n.event_id = w.event_id COLLATE {collation}
WHERE n.aggregate_version > 0
` + headOrder + `
` + headNewer

const lastEventSQL = `SELECT COALESCE(MAX(e.id), 0) FROM {event} e`

const fillHeadsSQL = headInsert + `
SELECT ` + headColumns + `
FROM {event} n
WHERE n.id > ? AND n.id <= ? AND n.aggregate_version > 0
` + headOrder + `
` + headNewer

// fillRows is how many ids of events one statement turns into heads.
const fillRows = 10_000

// fillHeads gives the facts that are older than the table their heads. What is
// inserted meanwhile has its head already.
func (s *Store) fillHeads(ctx context.Context) error {
	var last int64
	if _, err := s.pool().one(ctx, lastEventSQL, nil, &last); err != nil {
		return err
	}
	for from := int64(0); from < last; from += fillRows {
		err := s.inTx(ctx, func(tx ownTx) error {
			_, err := tx.exec(ctx, fillHeadsSQL, from, from+fillRows)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

const headSQL = `
SELECT tenant_id, aggregate_type, aggregate_id, aggregate_version, event_id, outbox_id, event_type, payload, created_at
FROM {head}
WHERE aggregate_id = ? AND aggregate_type = ? AND tenant_id = ?`

// Head returns the head of an aggregate.
func (s *Store) Head(ctx context.Context, tenantID, aggregateType, aggregateID string) (store.Head, bool, error) {
	var h store.Head
	var created moment
	found, err := s.pool().one(ctx, headSQL, []any{aggregateID, aggregateType, tenantID},
		&h.TenantID, &h.AggregateType, &h.AggregateID, &h.Version, &h.EventID, &h.OutboxID, &h.EventType, &h.Data, &created)
	h.CreatedAt = created.Time
	return h, found, failure("read head", aggregateID, err)
}
