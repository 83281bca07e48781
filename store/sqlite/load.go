package sqlite

import (
	"context"
	"database/sql"

	"github.com/waybillhq/waybill/store"
)

const loadSQL = `
SELECT ` + rowColumns + `, e.created_at, {now},
  ` + eventColumns + `
FROM json_each(?1) AS w
CROSS JOIN {pending} AS p ON p.id = w.value
CROSS JOIN {event} AS e ON e.id = p.id`

// Load returns the rows of some ids.
func (s *Store) Load(ctx context.Context, ids []int64, maxBytes int) (store.FetchResult, error) {
	if len(ids) == 0 {
		return store.FetchResult{}, nil
	}
	rows, err := s.query(ctx, loadSQL, jsonInts(ids))
	return s.page("load", rows, err, 0, maxBytes)
}

const fetchKeySQL = `
SELECT ` + rowColumns + `, e.created_at, {now},
  ` + eventColumns + `
FROM {pending} AS p INDEXED BY {pending_key}
CROSS JOIN {event} AS e ON e.id = p.id
WHERE p.key_hash = ?1 AND p.id > ?2 AND p.lane = ?3 AND (NOT ?4 OR p.status <> 'DEAD' OR p.skip = 1)
ORDER BY p.id
LIMIT ?5`

// FetchKey returns rows of one key.
func (s *Store) FetchKey(ctx context.Context, request store.KeyRequest) (store.FetchResult, error) {
	rows, err := s.query(ctx, fetchKeySQL, request.KeyHash, request.After, request.Lane, request.SkipDead, oneMore(request.Limit))
	return s.page("fetch key", rows, err, request.Limit, request.MaxBytes)
}

// oneMore asks for a row more than the limit, which tells whether there are any.
func oneMore(limit int) int {
	if limit <= 0 {
		return -1
	}
	return limit + 1
}

// page reads rows until a bound is met.
func (s *Store) page(op string, rows *sql.Rows, err error, limit, maxBytes int) (store.FetchResult, error) {
	var result store.FetchResult
	if err != nil {
		return result, s.failed(op, "", err)
	}
	defer rows.Close()
	size := 0
	for rows.Next() {
		if limit > 0 && len(result.Rows) == limit || maxBytes > 0 && size > maxBytes {
			result.Full = true
			break
		}
		row, err := scanRow(rows)
		if err != nil {
			return store.FetchResult{}, s.failed(op, "", err)
		}
		size += len(row.Event.Data)
		result.Rows = append(result.Rows, row)
	}
	if err := rows.Err(); err != nil {
		return store.FetchResult{}, s.failed(op, "", err)
	}
	return result, nil
}
