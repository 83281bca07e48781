package postgres

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/waybillhq/waybill/store"
)

// The heads of new events are written by one statement between its INSERT and
// its order, so that the trigger and Append can never disagree. Two transactions
// that meet the same aggregates lock them in the same order.
const (
	headInsert = `INSERT INTO {head} AS h (tenant_id, aggregate_type, aggregate_id, aggregate_version,
                           event_id, outbox_id, event_type, payload, created_at)
    SELECT DISTINCT ON (n.aggregate_id, n.aggregate_type, n.tenant_id)
           n.tenant_id, n.aggregate_type, n.aggregate_id, n.aggregate_version, n.event_id, n.id, n.event_type, n.payload, n.created_at`

	headNewer = `WHERE n.aggregate_version > 0
    ORDER BY n.aggregate_id, n.aggregate_type, n.tenant_id, n.aggregate_version DESC, n.id
    ON CONFLICT (aggregate_id, aggregate_type, tenant_id) DO UPDATE SET
        aggregate_version = EXCLUDED.aggregate_version, event_id = EXCLUDED.event_id, outbox_id = EXCLUDED.outbox_id,
        event_type = EXCLUDED.event_type, payload = EXCLUDED.payload, created_at = EXCLUDED.created_at
    WHERE h.aggregate_version < EXCLUDED.aggregate_version`

	headNew = headInsert + `
    FROM n
    ` + headNewer
)

var putHead = strings.NewReplacer("{head_insert}", headInsert, "{head_newer}", headNewer)

const lastEventSQL = `SELECT COALESCE(max(id), 0) FROM {event}`

const fillHeadsSQL = headInsert + `
    FROM (SELECT * FROM {event} WHERE id > $1 AND id <= $2) n
    ` + headNewer

// fillRows is how many ids of events one statement turns into heads.
const fillRows = 10_000

// fillHeads gives the facts that are older than the table their heads. What is
// inserted meanwhile has its head already.
func (s *Store) fillHeads(ctx context.Context) error {
	var last int64
	if err := s.pool.QueryRow(ctx, s.sql(lastEventSQL)).Scan(&last); err != nil {
		return err
	}
	for from := int64(0); from < last; from += fillRows {
		err := retry(ctx, func() error {
			_, err := s.pool.Exec(ctx, s.sql(fillHeadsSQL), from, from+fillRows)
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
WHERE aggregate_id = $3 AND aggregate_type = $2 AND tenant_id = $1`

// Head returns the head of an aggregate.
func (s *Store) Head(ctx context.Context, tenantID, aggregateType, aggregateID string) (store.Head, bool, error) {
	var h store.Head
	var created moment
	err := s.pool.QueryRow(ctx, s.sql(headSQL), tenantID, aggregateType, aggregateID).Scan(
		&h.TenantID, &h.AggregateType, &h.AggregateID, &h.Version, &h.EventID, &h.OutboxID, &h.EventType, &h.Data, &created)
	if errors.Is(err, pgx.ErrNoRows) {
		return h, false, nil
	}
	h.CreatedAt = created.Time
	return h, err == nil, failure("read head", aggregateID, err)
}
