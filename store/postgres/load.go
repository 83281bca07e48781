package postgres

import (
	"context"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/waybillhq/waybill/store"
)

// The event of a queue row, looked up by its id. LIMIT keeps the planner from
// turning that into a merge with all events, which a queue that has just grown
// would pay for; and the order, from an index that has the id in second place,
// which looks as good over an empty table.
const withEvent = `JOIN LATERAL (SELECT * FROM {event} x WHERE x.id >= p.id ORDER BY x.id LIMIT 1) e ON e.id = p.id`

// A large payload is left to a second statement, so that no more of them travel
// than were asked for.
const maxInline = 32 << 10

const loadColumns = queueColumns + `,
       ` + eventNames + `,
       CASE WHEN octet_length(payload) <= 32768 THEN payload END, ` + eventRest + `,
       created_at, clock_timestamp(), octet_length(payload)`

const loadSQL = `
SELECT ` + loadColumns + `
FROM {pending} p
` + withEvent + `
WHERE p.id = ANY ($1::bigint[])
ORDER BY p.id`

// Ids that lie close together are merged with the part of the tables where they
// are: walking an index is several times cheaper than searching it for each id.
const loadRangeSQL = `
SELECT ` + loadColumns + `
FROM unnest($1::bigint[]) AS w (id)
JOIN {pending} p ON p.id = w.id
JOIN {event} e ON e.id = w.id
WHERE p.id BETWEEN $2 AND $3 AND e.id BETWEEN $2 AND $3
ORDER BY p.id`

// Where nearly all ids of a range are wanted, the range is read, and the few rows
// that are not wanted are passed over here: sorting the list is half of the merge.
const loadDenseSQL = `
SELECT ` + loadColumns + `
FROM {pending} p
JOIN {event} e ON e.id = p.id
WHERE p.id BETWEEN $1 AND $2 AND e.id BETWEEN $1 AND $2
ORDER BY p.id`

const mergeSettingsSQL = `
SELECT set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true), set_config('jit', 'off', true),
       set_config('enable_nestloop', 'off', true), set_config('enable_hashjoin', 'off', true)`

// sparse is how many ids a range may span for each one that is wanted.
const sparse = 4

// Load returns the rows of some ids.
func (s *Store) Load(ctx context.Context, ids []int64, maxBytes int) (store.FetchResult, error) {
	if len(ids) == 0 {
		return store.FetchResult{}, nil
	}
	p := &page{rows: make([]*store.Row, 0, len(ids)), maxBytes: maxBytes}
	first, last := ids[0], ids[len(ids)-1]
	switch settings := rangeSettings(first, last, len(ids)); {
	case last-first < dense(len(ids)):
		p.wanted = ids
		return s.fetch(ctx, "load", "", p, settings, loadDenseSQL, first, last)
	case settings == mergeSettingsSQL:
		return s.fetch(ctx, "load", "", p, settings, loadRangeSQL, ids, first, last)
	default:
		return s.fetch(ctx, "load", "", p, settings, loadSQL, ids)
	}
}

// dense is how many ids a range may span to be read whole for the n that are
// wanted.
func dense(n int) int64 { return int64(n) * 5 / 4 }

// id + 0 is what the index over keys holds; see the migration.
const fetchKeySQL = `
SELECT ` + loadColumns + `
FROM {pending} p
` + withEvent + `
WHERE p.key_hash = $1 AND p.id + 0 > $2 AND p.lane = $5 AND NOT ($3 AND p.status = 'DEAD' AND NOT p.skip)
ORDER BY p.id + 0
LIMIT $4`

// FetchKey returns rows of one key.
func (s *Store) FetchKey(ctx context.Context, request store.KeyRequest) (store.FetchResult, error) {
	return s.fetch(ctx, "fetch key", strconv.FormatInt(request.KeyHash, 10), &page{limit: request.Limit, maxBytes: request.MaxBytes},
		readSettingsSQL, fetchKeySQL, request.KeyHash, request.After, request.SkipDead, oneMore(request.Limit), int16(request.Lane))
}

// page collects rows until a bound is met.
type page struct {
	rows            []*store.Row
	limit, maxBytes int
	bytes           int
	full            bool
	large           []int64 // rows whose payload is yet to be read
	wanted          []int64 // rising; nil: all
}

// wants is asked by rising ids.
func (p *page) wants(id int64) bool {
	if p.wanted == nil {
		return true
	}
	for len(p.wanted) > 0 && p.wanted[0] < id {
		p.wanted = p.wanted[1:]
	}
	return len(p.wanted) > 0 && p.wanted[0] == id
}

func (s *Store) fetch(ctx context.Context, op, key string, p *page, settings, template string, args ...any) (store.FetchResult, error) {
	err := s.read(ctx, settings, p.collect, s.sql(template), args...)
	if err == nil && len(p.large) > 0 {
		err = s.fillPayloads(ctx, p)
	}
	if err != nil {
		return store.FetchResult{}, failure(op, key, err)
	}
	return store.FetchResult{Rows: p.rows, Full: p.full}, nil
}

func (p *page) collect(rows pgx.Rows) error {
	var size int
	scan := newRowScan(&size)
	for rows.Next() {
		if p.full = p.limit > 0 && len(p.rows) == p.limit || p.maxBytes > 0 && p.bytes > p.maxBytes; p.full {
			break
		}
		row, err := scan.row(rows)
		if err != nil {
			return err
		}
		if !p.wants(row.ID) {
			continue
		}
		if size > maxInline {
			p.large = append(p.large, row.ID)
		}
		p.bytes += size
		p.rows = append(p.rows, row)
	}
	return rows.Err()
}

const largePayloadsSQL = `SELECT e.id, e.payload FROM {event} e WHERE e.id = ANY ($1::bigint[])`

// fillPayloads reads what was left out. A row whose event went away meanwhile
// is settled.
func (s *Store) fillPayloads(ctx context.Context, p *page) error {
	payloads := make(map[int64][]byte, len(p.large))
	err := s.read(ctx, readSettingsSQL, func(rows pgx.Rows) error {
		var id int64
		var payload []byte
		_, err := pgx.ForEachRow(rows, []any{&id, &payload}, func() error {
			payloads[id], payload = payload, nil
			return nil
		})
		return err
	}, s.sql(largePayloadsSQL), p.large)
	if err != nil {
		return err
	}
	wanted := make(map[int64]bool, len(p.large))
	for _, id := range p.large {
		wanted[id] = true
	}
	kept := p.rows[:0]
	for _, row := range p.rows {
		if wanted[row.ID] {
			payload, there := payloads[row.ID]
			if !there {
				continue
			}
			row.Event.Data = payload
		}
		kept = append(kept, row)
	}
	p.rows = kept
	return nil
}
