package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/waybillhq/waybill/store"
)

// A snapshot counts the transactions of all databases. They are ended in their own.
const listPreparedSQL = `
SELECT gid, database, format('COMMIT PREPARED %L', gid), format('ROLLBACK PREPARED %L', gid)
FROM pg_catalog.pg_prepared_xacts
ORDER BY prepared, gid`

// ListPrepared returns the server's prepared transactions.
func (s *Store) ListPrepared(ctx context.Context) ([]store.PreparedTransaction, error) {
	rows, err := s.pool.Query(ctx, s.sql(listPreparedSQL))
	if err != nil {
		return nil, failure("list prepared", "", err)
	}
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (p store.PreparedTransaction, err error) {
		var database string
		err = row.Scan(&p.Name, &database, &p.Commit, &p.Rollback)
		p.Name += " (database " + database + ")"
		return p, err
	})
	return found, failure("list prepared", "", err)
}
