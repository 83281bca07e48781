package postgres

import (
	"context"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
)

// SQL returns the appender for transactions of database/sql and of what is
// built over it. It relies on no driver's idea of arrays.
func (s *Store) SQL() store.Appender[store.SQLTx] { return sqlAppender{s} }

type sqlAppender struct{ store *Store }

// Append inserts the events with one statement.
func (a sqlAppender) Append(ctx context.Context, tx store.SQLTx, events []waybill.Event) ([]error, error) {
	if len(events) == 0 {
		return nil, nil
	}
	columns, err := columnsOf(events)
	if err != nil {
		return nil, failure("append", "", err)
	}
	rows, err := tx.QueryContext(ctx, a.store.appendText(), columns.literals()...)
	if err != nil {
		return nil, failure("append", keyOf(events), err)
	}
	defer func() { _ = rows.Close() }()
	var inserted []string
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return nil, failure("append", keyOf(events), err)
		}
		inserted = append(inserted, id)
	}
	if err := rows.Err(); err != nil {
		return nil, failure("append", keyOf(events), err)
	}
	return duplicates(events, inserted), nil
}

// Existing returns the stored events of these ids.
func (a sqlAppender) Existing(ctx context.Context, tx store.SQLTx, ids []string) ([]waybill.Event, error) {
	rows, err := tx.QueryContext(ctx, a.store.sql(existingSQL), textArray(ids))
	if err != nil {
		return nil, failure("existing", "", err)
	}
	defer func() { _ = rows.Close() }()
	var events []waybill.Event
	for rows.Next() {
		var scan eventScan
		if err := rows.Scan(scan.targets()...); err != nil {
			return nil, failure("existing", "", err)
		}
		events = append(events, scan.finish())
	}
	return events, failure("existing", "", rows.Err())
}
