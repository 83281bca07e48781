package main

import (
	"context"
	"errors"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybillhq/waybill"
)

// The table that most people begin with: the event and what became of it in one
// row, and an index for each question that is asked of it.
const createSingleSQL = `
CREATE TABLE IF NOT EXISTS outbox_single (
    id                BIGSERIAL PRIMARY KEY,
    event_id          TEXT NOT NULL UNIQUE,
    tenant_id         TEXT NOT NULL DEFAULT '',
    aggregate_type    TEXT NOT NULL,
    aggregate_id      TEXT NOT NULL,
    aggregate_version BIGINT,
    event_type        TEXT NOT NULL,
    topic             TEXT NOT NULL,
    payload           BYTEA NOT NULL,
    headers           JSON,
    status            TEXT NOT NULL DEFAULT 'PENDING',
    retry_count       INTEGER NOT NULL DEFAULT 0,
    next_retry_at     TIMESTAMPTZ,
    last_error        TEXT,
    created_at        TIMESTAMPTZ NOT NULL DEFAULT now(),
    published_at      TIMESTAMPTZ
);
CREATE INDEX IF NOT EXISTS outbox_single_status ON outbox_single (status, next_retry_at, id);
CREATE INDEX IF NOT EXISTS outbox_single_aggregate ON outbox_single (aggregate_id, aggregate_type, tenant_id, aggregate_version);
CREATE INDEX IF NOT EXISTS outbox_single_created ON outbox_single (created_at);`

var singleColumns = []string{"event_id", "aggregate_type", "aggregate_id", "aggregate_version", "event_type", "topic", "payload"}

// fillSingle inserts events by COPY and tidies up, as a vacuum would.
func fillSingle(ctx context.Context, pool *pgxpool.Pool, from *source, n int) error {
	if _, err := pool.Exec(ctx, createSingleSQL); err != nil {
		return err
	}
	err := from.batches(n, func(events []waybill.Event) error {
		_, err := pool.CopyFrom(ctx, pgx.Identifier{"outbox_single"}, singleColumns, pgx.CopyFromSlice(len(events), func(i int) ([]any, error) {
			e := &events[i]
			return []any{e.ID, e.AggregateType, e.AggregateID, e.AggregateVersion, e.Type, e.Topic, e.Data}, nil
		}))
		return err
	})
	if err != nil {
		return err
	}
	_, err = pool.Exec(ctx, `VACUUM (ANALYZE) outbox_single`)
	return err
}

const (
	takeSingleSQL = `
SELECT id, event_id, event_type, aggregate_type, aggregate_id, COALESCE(aggregate_version, 0), topic, payload
FROM outbox_single
WHERE status = 'PENDING' AND next_retry_at IS NULL
ORDER BY id
LIMIT $1`
	markSingleSQL = `UPDATE outbox_single SET status = 'SENT', published_at = clock_timestamp() WHERE id = ANY ($1::bigint[])`
	dropSingleSQL = `DELETE FROM outbox_single WHERE id = ANY ($1::bigint[])`
)

// drainStatus takes a batch, sends all of it at once, and marks it.
func (t *task) drainStatus(ctx context.Context) (*outcome, error) {
	return t.drainSingle(ctx, markSingleSQL, 1000, func(ctx context.Context, client *kgo.Client, rows []row) error {
		var (
			all   sync.WaitGroup
			mu    sync.Mutex
			first error
		)
		all.Add(len(rows))
		for i := range rows {
			client.Produce(ctx, rows[i].record(), func(_ *kgo.Record, err error) {
				if err != nil {
					mu.Lock()
					first = errors.Join(first, err)
					mu.Unlock()
				}
				all.Done()
			})
		}
		all.Wait()
		return first
	})
}

// drainOneByOne waits for each answer before it sends the next record. What was
// sent is deleted in batches.
func (t *task) drainOneByOne(ctx context.Context) (*outcome, error) {
	return t.drainSingle(ctx, dropSingleSQL, 100, func(ctx context.Context, client *kgo.Client, rows []row) error {
		for i := range rows {
			if err := client.ProduceSync(ctx, rows[i].record()).FirstErr(); err != nil {
				return err
			}
		}
		return nil
	})
}

func (t *task) drainSingle(ctx context.Context, settle string, batch int, send func(context.Context, *kgo.Client, []row) error) (*outcome, error) {
	pool, err := pgxpool.New(ctx, t.DSN)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	client, err := newProducer(t.URL)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	result, began := &outcome{}, now()
	for {
		found, err := pool.Query(ctx, takeSingleSQL, batch)
		if err != nil {
			return nil, err
		}
		rows, err := pgx.CollectRows(found, func(from pgx.CollectableRow) (r row, err error) {
			err = from.Scan(r.targets()...)
			return r, err
		})
		if err != nil {
			return nil, err
		}
		if len(rows) == 0 {
			return result, nil
		}
		if err := send(ctx, client, rows); err != nil {
			return nil, err
		}
		ids := make([]int64, len(rows))
		for i := range rows {
			ids[i] = rows[i].id
		}
		if _, err := pool.Exec(ctx, settle, ids); err != nil {
			return nil, err
		}
		result.Events += len(rows)
		result.Seconds = since(began)
	}
}
