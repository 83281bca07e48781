package mysql

import (
	"context"
	"slices"
	"strconv"

	"github.com/waybillhq/waybill/store"
)

// A large payload is left to a second statement, so that no more of them travel
// than were asked for.
const maxInline = 32 << 10

// loadColumns are in the order of loadScan. Times are told as differences to now,
// and a payload is NULL where it is large.
const loadColumns = `p.id, p.lane, p.key_hash, p.topic_hash, p.status, p.parked, p.skip, p.retry_count,
       TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), p.next_retry_at), p.first_error, p.last_error,
       TIMESTAMPDIFF(MICROSECOND, e.created_at, UTC_TIMESTAMP(6)),
       e.event_id, e.tenant_id, e.aggregate_type, e.aggregate_id, e.aggregate_version, e.event_type, e.event_version, e.topic, e.event_key,
       e.content_type, e.headers, e.occurred_at, LENGTH(e.payload), IF(LENGTH(e.payload) <= 32768, e.payload, NULL)`

// The ids are written into the statement: a list of numbers is searched for in its
// order, and costs half of a list in JSON. Ids that lie close together cost least as
// a range, of which a few rows are not wanted.
const (
	loadSQL = `
SELECT ` + loadColumns + `
FROM {pending} p FORCE INDEX (PRIMARY) STRAIGHT_JOIN {event} e FORCE INDEX (PRIMARY) ON e.id = p.id
WHERE p.id IN ({ids})
ORDER BY p.id`

	loadRangeSQL = `
SELECT ` + loadColumns + `
FROM {pending} p FORCE INDEX (PRIMARY) STRAIGHT_JOIN {event} e FORCE INDEX (PRIMARY) ON e.id = p.id
WHERE p.id BETWEEN ? AND ?
ORDER BY p.id`
)

// Load returns the rows of some ids.
func (s *Store) Load(ctx context.Context, ids []int64, maxBytes int) (store.FetchResult, error) {
	if len(ids) == 0 {
		return store.FetchResult{}, nil
	}
	p := &page{rows: make([]*store.Row, 0, len(ids)), maxBytes: maxBytes}
	if first, last := slices.Min(ids), slices.Max(ids); last-first < dense(len(ids)) {
		p.wanted = make(map[int64]bool, len(ids))
		for _, id := range ids {
			p.wanted[id] = true
		}
		return s.fetch(ctx, "load", "", p, s.sql(loadRangeSQL), first, last)
	}
	return s.fetch(ctx, "load", "", p, withIDs(s.sql(loadSQL), ids))
}

// dense is how many ids a range may span to be loaded whole for the n that are
// wanted.
func dense(n int) int64 { return int64(n) * 5 / 4 }

const fetchKeySQL = `
SELECT ` + loadColumns + `
FROM {pending} p FORCE INDEX (by_key) STRAIGHT_JOIN {event} e FORCE INDEX (PRIMARY) ON e.id = p.id
WHERE p.key_hash = ? AND p.id > ? AND p.lane = ? AND NOT (? AND p.status = 'DEAD' AND p.skip = 0)
ORDER BY p.id
LIMIT ?`

// FetchKey returns rows of one key.
func (s *Store) FetchKey(ctx context.Context, request store.KeyRequest) (store.FetchResult, error) {
	return s.fetch(ctx, "fetch key", strconv.FormatInt(request.KeyHash, 10), &page{limit: request.Limit, maxBytes: request.MaxBytes},
		s.sql(fetchKeySQL), request.KeyHash, request.After, request.Lane, request.SkipDead, oneMore(request.Limit))
}

// page collects rows until a bound is met.
type page struct {
	rows            []*store.Row
	limit, maxBytes int
	bytes           int
	full            bool
	large           []int64        // rows whose payload is yet to be read
	wanted          map[int64]bool // nil: all
}

func (s *Store) fetch(ctx context.Context, op, key string, p *page, text string, args ...any) (store.FetchResult, error) {
	err := s.collectPage(ctx, p, text, args)
	if err == nil && len(p.large) > 0 {
		err = s.fillPayloads(ctx, p)
	}
	if err != nil {
		return store.FetchResult{}, failure(op, key, err)
	}
	return store.FetchResult{Rows: p.rows, Full: p.full}, nil
}

func (s *Store) collectPage(ctx context.Context, p *page, text string, args []any) error {
	rows, err := s.db.QueryContext(ctx, text, args...)
	if err != nil {
		return err
	}
	scan := newLoadScan()
	return each(rows, func() error {
		if p.full = p.full || p.limit > 0 && len(p.rows) == p.limit || p.maxBytes > 0 && p.bytes > p.maxBytes; p.full {
			return nil
		}
		row, size, err := scan.row(rows)
		if err != nil {
			return err
		}
		if p.wanted != nil && !p.wanted[row.ID] {
			return nil
		}
		if size > maxInline {
			p.large = append(p.large, row.ID)
		}
		p.bytes += size
		p.rows = append(p.rows, row)
		return nil
	})
}

const largePayloadsSQL = `
SELECT e.id, e.payload FROM ` + listedIDs + ` STRAIGHT_JOIN {event} e FORCE INDEX (PRIMARY) ON e.id = w.id`

// fillPayloads reads what was left out. A row whose event went away meanwhile
// is settled.
func (s *Store) fillPayloads(ctx context.Context, p *page) error {
	payloads := make(map[int64][]byte, len(p.large))
	rows, err := s.pool().query(ctx, largePayloadsSQL, list(p.large))
	if err != nil {
		return err
	}
	err = each(rows, func() error {
		var id int64
		var payload []byte
		err := rows.Scan(&id, &payload)
		payloads[id] = payload
		return err
	})
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
