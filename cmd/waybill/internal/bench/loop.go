package bench

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/waybillhq/waybill"
)

// The loop is what somebody writes who has the three tables and no relay: take
// the lowest ids with their events, send them all at once, then delete them from
// the queue, note the receipts and commit. It knows no leases, keeps nobody from
// running a second one, and stops at the first error. It sends what the relay
// sends in the raw format.

const (
	loopBatch = 1000

	loopColumns = `
SELECT p.id, e.event_id, e.event_type, e.event_version, e.aggregate_type, e.aggregate_id, COALESCE(e.aggregate_version, 0),
       e.topic, e.event_key, e.payload, e.content_type, e.occurred_at`

	loopSelectSQL = loopColumns + `
FROM outbox_pending p JOIN outbox_event e ON e.id = p.id
WHERE p.status = 'PENDING' AND p.parked = 0
ORDER BY p.id
LIMIT %d`

	// Without the inner LIMIT, PostgreSQL merges the queue with all events that were
	// ever settled.
	loopSelectPostgresSQL = loopColumns + `
FROM (SELECT id FROM outbox_pending WHERE status = 'PENDING' AND NOT parked ORDER BY id LIMIT %d) p
JOIN outbox_event e ON e.id = p.id
ORDER BY p.id`
)

// loopRow is a row of the queue with its event, as a record.
type loopRow struct {
	id     int64
	record waybill.Record
}

// loopScan receives loopColumns.
type loopScan struct {
	id                                                int64
	eventID, kind, aggregate, key, topic, contentType string
	aggregateID                                       string
	version, aggregateVersion                         int64
	payload                                           []byte
}

func (s *loopScan) targets(occurredAt any) []any {
	return []any{
		&s.id, &s.eventID, &s.kind, &s.version, &s.aggregate, &s.aggregateID, &s.aggregateVersion,
		&s.topic, &s.key, &s.payload, &s.contentType, occurredAt,
	}
}

func (s *loopScan) row(occurredAt string) loopRow {
	key := s.key
	if key == "" {
		key = s.aggregateID
	}
	return loopRow{s.id, waybill.Record{
		EventID: s.eventID, Topic: s.topic, Key: key, Value: s.payload,
		Headers: []waybill.Header{
			{Key: "id", Value: []byte(s.eventID)},
			{Key: "eventType", Value: []byte(s.kind)},
			{Key: "eventVersion", Value: strconv.AppendInt(nil, s.version, 10)},
			{Key: "aggregateType", Value: []byte(s.aggregate)},
			{Key: "aggregateId", Value: []byte(s.aggregateID)},
			{Key: "aggregateVersion", Value: strconv.AppendInt(nil, s.aggregateVersion, 10)},
			{Key: "occurredAt", Value: []byte(occurredAt)},
			{Key: "content-type", Value: []byte(s.contentType)},
		},
	}}
}

// looper is the loop's side of a kind of database.
type looper interface {
	take(ctx context.Context) ([]loopRow, error)
	settle(ctx context.Context, rows []loopRow, forget bool) error
}

func newLooper(d *database) looper {
	if d.pool != nil {
		return postgresLoop{d}
	}
	return &sqlLoop{db: d.db, sqlite: d.kind == kindSQLite}
}

func (t *task) loop(ctx context.Context, d *database, h *house) (*outcome, error) {
	p, err := h.producer(ctx)
	if err != nil {
		return nil, err
	}
	defer p.close()
	l, result, began := newLooper(d), &outcome{}, now()
	for {
		rows, err := l.take(ctx)
		if err != nil {
			return nil, err
		}
		if len(rows) == 0 {
			break
		}
		records := make([]waybill.Record, len(rows))
		for i := range rows {
			records[i] = rows[i].record
		}
		if err := p.produce(ctx, records); err != nil {
			return nil, err
		}
		if err := l.settle(ctx, rows, t.Forget); err != nil {
			return nil, err
		}
		result.Events += len(rows)
		result.Seconds = since(began)
	}
	if result.Events != t.Events {
		return nil, fmt.Errorf("the loop found %d events, not %d", result.Events, t.Events)
	}
	return result, nil
}

const (
	loopDeleteSQL = `DELETE FROM outbox_pending WHERE id = ANY ($1::bigint[])`
	loopForgetSQL = `DELETE FROM outbox_event WHERE id = ANY ($1::bigint[])`
	loopNoteSQL   = `
INSERT INTO outbox_receipt (id, event_id, outcome, via, published_to)
SELECT id, event_id, 'SENT', 'loop', topic
FROM unnest($1::bigint[], $2::text[], $3::text[]) AS r (id, event_id, topic)`
)

type postgresLoop struct{ d *database }

func (l postgresLoop) take(ctx context.Context) ([]loopRow, error) {
	found, err := l.d.pool.Query(ctx, fmt.Sprintf(loopSelectPostgresSQL, loopBatch))
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(found, func(row pgx.CollectableRow) (loopRow, error) {
		var s loopScan
		var at time.Time
		err := row.Scan(s.targets(&at)...)
		return s.row(at.UTC().Format(time.RFC3339Nano)), err
	})
}

// settle goes in one trip, which is one transaction.
func (l postgresLoop) settle(ctx context.Context, rows []loopRow, forget bool) error {
	ids, eventIDs, topics := make([]int64, len(rows)), make([]string, len(rows)), make([]string, len(rows))
	for i := range rows {
		ids[i], eventIDs[i], topics[i] = rows[i].id, rows[i].record.EventID, rows[i].record.Topic
	}
	batch := &pgx.Batch{}
	batch.Queue(loopDeleteSQL, ids)
	if forget {
		batch.Queue(loopForgetSQL, ids)
	} else {
		batch.Queue(loopNoteSQL, ids, eventIDs, topics)
	}
	return l.d.pool.SendBatch(ctx, batch).Close()
}

const (
	loopDeleteInSQL = `DELETE FROM outbox_pending WHERE id IN (%s)`
	loopForgetInSQL = `DELETE FROM outbox_event WHERE id IN (%s)`
	loopNoteRowsSQL = `INSERT INTO outbox_receipt (id, event_id, outcome, via, published_to, note) VALUES %s`
)

// sqlLoop is for databases that have no arrays.
type sqlLoop struct {
	db     *sql.DB
	sqlite bool
}

func (l *sqlLoop) take(ctx context.Context) ([]loopRow, error) {
	found, err := l.db.QueryContext(ctx, fmt.Sprintf(loopSelectSQL, loopBatch))
	if err != nil {
		return nil, err
	}
	defer func() { _ = found.Close() }()
	rows := make([]loopRow, 0, loopBatch)
	for found.Next() {
		var s loopScan
		var at time.Time
		var text string
		target := any(&at)
		if l.sqlite {
			target = &text
		}
		if err := found.Scan(s.targets(target)...); err != nil {
			return nil, err
		}
		if !l.sqlite {
			text = at.Format(time.RFC3339Nano)
		}
		rows = append(rows, s.row(text))
	}
	return rows, found.Err()
}

func (l *sqlLoop) settle(ctx context.Context, rows []loopRow, forget bool) error {
	ids := make([]any, len(rows))
	notes := make([]any, 0, 3*len(rows))
	for i := range rows {
		ids[i] = rows[i].id
		notes = append(notes, rows[i].id, rows[i].record.EventID, rows[i].record.Topic)
	}
	tx, err := l.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	places := marks("?", len(rows))
	if _, err := tx.ExecContext(ctx, fmt.Sprintf(loopDeleteInSQL, places), ids...); err != nil {
		return err
	}
	if forget {
		_, err = tx.ExecContext(ctx, fmt.Sprintf(loopForgetInSQL, places), ids...)
	} else {
		_, err = tx.ExecContext(ctx, fmt.Sprintf(loopNoteRowsSQL, marks("(?, ?, 'SENT', 'loop', ?, '')", len(rows))), notes...)
	}
	if err != nil {
		return err
	}
	return tx.Commit()
}

// marks repeats a placeholder.
func marks(one string, n int) string { return strings.Repeat(one+", ", n-1) + one }
