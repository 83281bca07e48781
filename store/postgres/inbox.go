package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/waybillhq/waybill/store"
)

// BeginInbox starts a consumer transaction.
func (s *Store) BeginInbox(ctx context.Context) (store.InboxTx[pgx.Tx], error) {
	tx, err := s.Begin(ctx)
	if err != nil {
		return nil, err
	}
	return &inboxTx{store: s, tx: tx}, nil
}

// inboxTx is one consumer transaction. Its statements go through the guard of
// tx like the handler's.
type inboxTx struct {
	store *Store
	tx    *Tx
	saved bool // there is a savepoint
}

// Handle returns the transaction for the handler, who cannot end it.
func (t *inboxTx) Handle() pgx.Tx { return handlerTx{guarded{t.tx, t.tx.inner, true}} }

// Abort makes the transaction unusable at once.
func (t *inboxTx) Abort() { t.tx.Abort() }

const (
	savepointSQL = `SAVEPOINT waybill`
	// Again over one that is still there: equal names would pile up.
	resavepointSQL = `RELEASE SAVEPOINT waybill; SAVEPOINT waybill`
	releaseSaveSQL = `RELEASE SAVEPOINT waybill`
	rollbackToSQL  = `ROLLBACK TO SAVEPOINT waybill`
)

var errNoSavepoint = errors.New("there is no savepoint")

// Savepoint marks where RollbackTo goes back to.
func (t *inboxTx) Savepoint(ctx context.Context) error {
	text := savepointSQL
	if t.saved {
		text = resavepointSQL
	}
	if err := t.control(ctx, "savepoint", text); err != nil {
		return err
	}
	t.saved = true
	return nil
}

// Release keeps what was done since Savepoint.
func (t *inboxTx) Release(ctx context.Context) error {
	if err := t.needSavepoint("release savepoint"); err != nil {
		return err
	}
	t.saved = false
	return t.control(ctx, "release savepoint", releaseSaveSQL)
}

// RollbackTo undoes what was done since Savepoint, which stays.
func (t *inboxTx) RollbackTo(ctx context.Context) error {
	if err := t.needSavepoint("roll back to savepoint"); err != nil {
		return err
	}
	return t.control(ctx, "roll back to savepoint", rollbackToSQL)
}

var errFailedTx = errors.New("a statement failed, and nothing but a rollback is accepted after it")

// Sound looks at what the server said last.
func (t *inboxTx) Sound() error {
	if err := t.tx.usable(); err != nil {
		return failure("transaction", "", err)
	}
	if t.tx.Conn().PgConn().TxStatus() != 'T' {
		return failure("transaction", "", errFailedTx)
	}
	return nil
}

func (t *inboxTx) needSavepoint(op string) error {
	if err := t.tx.usable(); err != nil {
		return failure(op, "", err)
	}
	if !t.saved {
		return failure(op, "", errNoSavepoint)
	}
	return nil
}

// control sends text as it is: two statements in one trip are possible so.
func (t *inboxTx) control(ctx context.Context, op, text string) error {
	_, err := t.tx.Exec(ctx, text, pgx.QueryExecModeSimpleProtocol)
	return failure(op, "", err)
}

// Commit commits the transaction.
func (t *inboxTx) Commit(ctx context.Context) error { return failure("commit", "", t.tx.Commit(ctx)) }

// Rollback ends the transaction without effect, if it has not ended.
func (t *inboxTx) Rollback(ctx context.Context) error { return rollBack(ctx, t.tx) }

const markConsumedSQL = `
INSERT INTO {consumed} AS c (consumer_group, event_id, event_type, tenant_id, aggregate_type, aggregate_id, aggregate_version,
                             outcome, topic, partition, position)
VALUES ($1, $2, $3, $4, $5, $6, NULLIF($7::bigint, 0), $8, $9, $10, $11)
ON CONFLICT (consumer_group, event_id) DO UPDATE SET duplicates = c.duplicates + 1, last_duplicate_at = clock_timestamp()
RETURNING duplicates = 0`

// MarkConsumed inserts the row, or counts a duplicate.
func (t *inboxTx) MarkConsumed(ctx context.Context, c store.Consumed) (first bool, err error) {
	e := &c.Event
	err = t.tx.QueryRow(ctx, t.store.sql(markConsumedSQL), c.Group, encodeText(e.ID), storable(e.Type), storable(e.TenantID),
		storable(e.AggregateType), storable(e.AggregateID), e.AggregateVersion,
		string(c.Outcome), c.Topic, c.Partition, c.Position).Scan(&first)
	return first, failure("mark consumed", e.ID, err)
}

const markAllSQL = `
INSERT INTO {consumed} AS c (consumer_group, event_id, event_type, tenant_id, aggregate_type, aggregate_id, aggregate_version,
                             outcome, topic, partition, position)
SELECT $1, w.event_id, w.event_type, w.tenant_id, w.aggregate_type, w.aggregate_id, NULLIF(w.aggregate_version, 0),
       w.outcome, w.topic, w.partition, w.position
FROM unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bigint[], $8::text[], $9::text[], $10::integer[], $11::bigint[])
     AS w (event_id, event_type, tenant_id, aggregate_type, aggregate_id, aggregate_version, outcome, topic, partition, position)
ON CONFLICT (consumer_group, event_id) DO UPDATE SET duplicates = c.duplicates + 1, last_duplicate_at = clock_timestamp()
RETURNING event_id, duplicates = 0`

// MarkAll inserts the rows, or counts duplicates.
func (t *inboxTx) MarkAll(ctx context.Context, consumed []store.Consumed) ([]bool, error) {
	if len(consumed) == 0 {
		return nil, failure("mark all", "", t.tx.usable())
	}
	n := len(consumed)
	text := make([]string, 7*n)
	take := func() []string {
		part := text[:n]
		text = text[n:]
		return part
	}
	ids, types, tenants, kinds, aggregates, outcomes, topics := take(), take(), take(), take(), take(), take(), take()
	versions, partitions, positions := make([]int64, n), make([]int32, n), make([]int64, n)
	at := make(map[string]int, n)
	for i := range consumed {
		c := &consumed[i]
		e := &c.Event
		ids[i], types[i], tenants[i] = encodeText(e.ID), storable(e.Type), storable(e.TenantID)
		kinds[i], aggregates[i], versions[i] = storable(e.AggregateType), storable(e.AggregateID), e.AggregateVersion
		outcomes[i], topics[i], partitions[i], positions[i] = string(c.Outcome), c.Topic, c.Partition, c.Position
		at[ids[i]] = i
	}
	rows, err := t.tx.Query(ctx, t.store.sql(markAllSQL), consumed[0].Group, ids, types, tenants, kinds, aggregates, versions,
		outcomes, topics, partitions, positions)
	if err != nil {
		return nil, failure("mark all", "", err)
	}
	first := make([]bool, n)
	var id string
	var isFirst bool
	_, err = pgx.ForEachRow(rows, []any{&id, &isFirst}, func() error {
		first[at[id]] = isFirst
		return nil
	})
	if err != nil {
		return nil, failure("mark all", "", t.tx.reason(err))
	}
	return first, nil
}

const unmarkSQL = `DELETE FROM {consumed} WHERE consumer_group = $1 AND event_id = ANY ($2::text[])`

// Unmark takes back marks.
func (t *inboxTx) Unmark(ctx context.Context, group string, eventIDs []string) error {
	ids := make([]string, len(eventIDs))
	for i, id := range eventIDs {
		ids[i] = encodeText(id)
	}
	_, err := t.tx.Exec(ctx, t.store.sql(unmarkSQL), group, ids)
	return failure("unmark", "", err)
}

const isConsumedSQL = `SELECT EXISTS (SELECT FROM {consumed} WHERE consumer_group = $1 AND event_id = $2)`

const countDuplicateSQL = `
WITH counted AS (
    UPDATE {consumed} SET duplicates = duplicates + 1, last_duplicate_at = clock_timestamp()
    WHERE consumer_group = $1 AND event_id = $2
    RETURNING 1
)
SELECT EXISTS (SELECT FROM counted)`

// IsConsumed reports whether the group has consumed the id.
func (t *inboxTx) IsConsumed(ctx context.Context, group, eventID string, count bool) (found bool, err error) {
	text := t.store.sql(isConsumedSQL)
	if count {
		text = t.store.sql(countDuplicateSQL)
	}
	err = t.tx.QueryRow(ctx, text, group, encodeText(eventID)).Scan(&found)
	return found, failure("is consumed", eventID, err)
}
