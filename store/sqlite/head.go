package sqlite

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/waybillhq/waybill/store"
)

const headNew = `
INSERT INTO {head} (tenant_id, aggregate_type, aggregate_id, aggregate_version, event_id, outbox_id, event_type, payload, created_at)
SELECT n.tenant_id, n.aggregate_type, n.aggregate_id, n.aggregate_version, n.event_id, n.id, n.event_type, n.payload, n.created_at
FROM {event} AS n
WHERE n.aggregate_version > 0`

const headNewer = `
ORDER BY n.aggregate_version DESC, n.id
ON CONFLICT (aggregate_id, aggregate_type, tenant_id) DO UPDATE SET
  aggregate_version = excluded.aggregate_version, event_id = excluded.event_id, outbox_id = excluded.outbox_id,
  event_type = excluded.event_type, payload = excluded.payload, created_at = excluded.created_at
WHERE aggregate_version < excluded.aggregate_version`

// headListedSQL writes the heads of listed events where no trigger does.
const headListedSQL = headNew + ` AND n.id IN (SELECT value FROM json_each(?1))` + headNewer

// fillHeadsSQL gives the facts that are older than the table their heads.
const fillHeadsSQL = headNew + headNewer

// migrateHead makes the table of heads, fills it, and sees to its trigger.
func (s *Store) migrateHead(ctx context.Context, w writing, options store.MigrateOptions, found *foundSchema) error {
	if !found.Head {
		if _, err := w.tx.ExecContext(ctx, s.migration("001_create_head")); err != nil {
			return fmt.Errorf("001_create_head: %w", err)
		}
	}
	if !found.Head || found.headTrigger == "" && !options.NoTrigger { // they were not kept meanwhile
		if _, err := w.exec(ctx, fillHeadsSQL); err != nil {
			return fmt.Errorf("fill heads: %w", err)
		}
	}
	wanted := strings.TrimRight(s.migration("001_create_head_trigger"), ";\n")
	if found.headTrigger != "" && (options.NoTrigger || found.headTrigger != wanted) {
		if _, err := w.tx.ExecContext(ctx, s.lexicon.Replace(`DROP TRIGGER {event_head}`)); err != nil {
			return fmt.Errorf("drop trigger: %w", err)
		}
		found.headTrigger = ""
	}
	if found.headTrigger == "" && !options.NoTrigger {
		if _, err := w.tx.ExecContext(ctx, wanted); err != nil {
			return fmt.Errorf("001_create_head_trigger: %w", err)
		}
	}
	return nil
}

const headSQL = `
SELECT tenant_id, aggregate_type, aggregate_id, aggregate_version, event_id, outbox_id, event_type, CAST(payload AS BLOB), created_at
FROM {head}
WHERE aggregate_id = ?3 AND aggregate_type = ?2 AND tenant_id = ?1`

// Head returns the head of an aggregate.
func (s *Store) Head(ctx context.Context, tenantID, aggregateType, aggregateID string) (store.Head, bool, error) {
	var h store.Head
	rows, err := s.query(ctx, headSQL, tenantID, aggregateType, aggregateID)
	if err != nil {
		return h, false, s.failed("read head", aggregateID, err)
	}
	found := rows.Next()
	if found {
		var created string
		err = rows.Scan(&h.TenantID, &h.AggregateType, &h.AggregateID, &h.Version, &h.EventID, &h.OutboxID, &h.EventType, &h.Data, &created)
		h.CreatedAt = parseTime(created)
	}
	err = errors.Join(err, rows.Err(), rows.Close())
	return h, found && err == nil, s.failed("read head", aggregateID, err)
}
