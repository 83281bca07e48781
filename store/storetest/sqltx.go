package storetest

import (
	"context"
	"database/sql"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
)

// SQLAppender narrows an appender over any database/sql transaction to *sql.Tx,
// so that appender and consumer of one harness have the same type.
func SQLAppender(appender store.Appender[store.SQLTx]) store.Appender[*sql.Tx] {
	return sqlAppender{appender}
}

type sqlAppender struct{ wide store.Appender[store.SQLTx] }

func (a sqlAppender) Append(ctx context.Context, tx *sql.Tx, events []waybill.Event) ([]error, error) {
	return a.wide.Append(ctx, tx, events)
}

func (a sqlAppender) Existing(ctx context.Context, tx *sql.Tx, ids []string) ([]waybill.Event, error) {
	return a.wide.Existing(ctx, tx, ids)
}
