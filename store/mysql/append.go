package mysql

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
)

// insertEventsSQL is followed by as many rows of values as there are events.
//
// IGNORE leaves out the duplicates and keeps the rest. Without it the statement
// would fail and be rolled back, and what it had touched would stay locked with
// the gaps around, in which other transactions could then not insert. What else
// IGNORE forgives cannot happen to a valid event; see refusal.
const insertEventsSQL = `
INSERT IGNORE INTO {event} (event_id, tenant_id, aggregate_type, aggregate_id, aggregate_version, event_type, event_version,
                     topic, event_key, payload, content_type, headers, occurred_at)
VALUES `

const insertRow = `(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`

// Without a trigger a second statement writes the queue rows.
const queueNewSQL = `
INSERT INTO {pending} (id, lane, key_hash, topic_hash)
SELECT n.id, {lane}, {key_hash}, {topic_hash}
FROM ` + listedEventIDs + ` STRAIGHT_JOIN {event} n FORCE INDEX (event_id) ON n.event_id = w.event_id COLLATE {collation}
{reset}`

// A statement is kept below what servers accept in one packet, also when its
// bytes are escaped, and below the number of parameters it may have.
const (
	maxInsertRows  = 1000
	maxInsertBytes = 4 << 20
)

// Append inserts the events with one statement for each thousand, and as many
// again without the trigger. Ids that were not made by waybill.NewID are looked
// for before, by one statement more.
func (s *Store) Append(ctx context.Context, tx store.SQLTx, events []waybill.Event) ([]error, error) {
	if len(events) == 0 {
		return nil, nil
	}
	results := make([]error, len(events))
	seen := make(map[string]bool, len(events))
	a := appending{s: s, tx: tx, results: results}
	size := 0
	var part []indexed
	for _, i := range s.appendOrder(events) {
		e := &events[i]
		if seen[e.ID] {
			results[i] = duplicate(e.ID)
			continue
		}
		seen[e.ID] = true
		if len(part) == maxInsertRows || size+len(e.Data) > maxInsertBytes && len(part) > 0 {
			if err := a.add(ctx, part); err != nil {
				return nil, failure("append", keyOf(events), err)
			}
			part, size = part[:0], 0
		}
		part, size = append(part, indexed{e, i}), size+len(e.Data)
	}
	if err := a.add(ctx, part); err != nil {
		return nil, failure("append", keyOf(events), err)
	}
	return results, nil
}

// appendOrder returns the order in which events are inserted. A trigger that
// keeps heads locks them row by row, so they come in the order of their keys:
// two transactions that meet the same aggregates then wait for each other and
// do not deadlock. The events of one key stay as they are.
func (s *Store) appendOrder(events []waybill.Event) []int {
	order := make([]int, len(events))
	for i := range order {
		order[i] = i
	}
	if s.config.Head {
		slices.SortStableFunc(order, func(a, b int) int {
			return strings.Compare(events[a].EffectiveKey(), events[b].EffectiveKey())
		})
	}
	return order
}

func duplicate(id string) error {
	return &waybill.Error{Op: "mysql: append", Key: id, Err: waybill.ErrDuplicateEvent}
}

// indexed is an event and its place in the call.
type indexed struct {
	event *waybill.Event
	at    int
}

type appending struct {
	s       *Store
	tx      store.SQLTx
	results []error
}

// add inserts events of different ids, and their queue rows.
func (a *appending) add(ctx context.Context, part []indexed) error {
	part, err := a.withoutVisible(ctx, part)
	if err != nil || len(part) == 0 {
		return err
	}
	result, err := a.insert(ctx, part)
	if err != nil {
		return err
	}
	affected, err := result.RowsAffected()
	if err != nil {
		return err
	}
	if int(affected) < len(part) {
		first, err := result.LastInsertId()
		if err != nil {
			return err
		}
		if part, err = a.sortOut(ctx, part, int(affected), first); err != nil {
			return err
		}
	}
	if !a.s.config.NoTrigger || len(part) == 0 {
		return nil
	}
	_, err = a.tx.ExecContext(ctx, a.s.sql(queueNewSQL), list(idsOf(part)))
	if err == nil && a.s.config.Head {
		_, err = a.tx.ExecContext(ctx, a.s.sql(headNewSQL), list(idsOf(part)))
	}
	return err
}

const visibleIDsSQL = `
SELECT e.event_id
FROM ` + listedEventIDs + ` STRAIGHT_JOIN {event} e FORCE INDEX (event_id) ON e.event_id = w.event_id COLLATE {collation}`

// withoutVisible leaves out what is stored already, by a look that locks
// nothing: a duplicate that an INSERT meets stays locked until the transaction
// ends, and a cleanup would wait for it. Ids that were drawn at random are not
// looked for.
func (a *appending) withoutVisible(ctx context.Context, part []indexed) ([]indexed, error) {
	var chosen []string
	for _, p := range part {
		if !isRandom(p.event.ID) {
			chosen = append(chosen, p.event.ID)
		}
	}
	if len(chosen) == 0 {
		return part, nil
	}
	found, err := collect(ctx, ownTx{a.s, a.tx}, scanOne[string], visibleIDsSQL, list(chosen))
	if err != nil || len(found) == 0 {
		return part, err
	}
	stored := make(map[string]bool, len(found))
	for _, id := range found {
		stored[id] = true
	}
	var rest []indexed
	for _, p := range part {
		if stored[p.event.ID] {
			a.results[p.at] = duplicate(p.event.ID)
		} else {
			rest = append(rest, p)
		}
	}
	return rest, nil
}

// isRandom tells ids in the form of waybill.NewID, a UUID of version 7.
func isRandom(id string) bool {
	return len(id) == 36 && id[8] == '-' && id[13] == '-' && id[14] == '7' && id[18] == '-' && id[23] == '-'
}

func (a *appending) insert(ctx context.Context, part []indexed) (sql.Result, error) {
	args := make([]any, 0, 13*len(part))
	for _, p := range part {
		e := p.event
		headers, err := e.MarshalHeaders()
		if err != nil {
			return nil, err
		}
		var headersText any
		if headers != nil {
			headersText = string(headers)
		}
		data := e.Data
		if data == nil {
			data = []byte{} // nil would be NULL
		}
		args = append(args, e.ID, e.TenantID, e.AggregateType, e.AggregateID, version(e), e.Type, e.SchemaVersion,
			e.Topic, e.EffectiveKey(), data, e.ContentType, headersText, moment{e.OccurredAt})
	}
	text := a.s.sql(insertEventsSQL) + strings.Repeat(insertRow+", ", len(part)-1) + insertRow
	return a.tx.ExecContext(ctx, text, args...)
}

const warningsSQL = `SHOW WARNINGS`

const insertedIDsSQL = `
SELECT e.event_id, e.id
FROM ` + listedEventIDs + ` STRAIGHT_JOIN {event} e FORCE INDEX (event_id) ON e.event_id = w.event_id COLLATE {collation}
WHERE e.id >= ?
ORDER BY e.id
LIMIT ?`

// sortOut tells the duplicates from the inserted. The server reserves the ids of
// one statement beforehand, as one range that begins with first or earlier, so
// the inserted rows are those of the lowest ids from there on, as many as were
// affected.
func (a *appending) sortOut(ctx context.Context, part []indexed, affected int, first int64) ([]indexed, error) {
	if err := a.refusal(ctx); err != nil {
		return nil, err
	}
	fresh := make(map[string]bool, affected)
	if affected > 0 {
		rows, err := ownTx{a.s, a.tx}.query(ctx, insertedIDsSQL, list(idsOf(part)), first, affected)
		if err != nil {
			return nil, err
		}
		err = each(rows, func() error {
			var eventID string
			var id int64
			err := rows.Scan(&eventID, &id)
			fresh[eventID] = true
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	var inserted []indexed
	for _, p := range part {
		if fresh[p.event.ID] {
			inserted = append(inserted, p)
		} else {
			a.results[p.at] = duplicate(p.event.ID)
		}
	}
	return inserted, nil
}

// refusal returns what other than a duplicate kept a row out.
func (a *appending) refusal(ctx context.Context) error {
	rows, err := ownTx{a.s, a.tx}.query(ctx, warningsSQL)
	if err != nil {
		return err
	}
	var refused error
	err = each(rows, func() error {
		var level, message string
		var code uint16
		err := rows.Scan(&level, &code, &message)
		if refused == nil && err == nil && code != codeDuplicate && code != codeDeprecated && level != "Note" {
			refused = &mysql.MySQLError{Number: code, Message: message}
		}
		return err
	})
	return errors.Join(err, refused)
}

func idsOf(part []indexed) []string {
	ids := make([]string, len(part))
	for i, p := range part {
		ids[i] = p.event.ID
	}
	return ids
}

const existingSQL = `
SELECT ` + eventColumns + `
FROM ` + listedEventIDs + ` STRAIGHT_JOIN {event} e FORCE INDEX (event_id) ON e.event_id = w.event_id COLLATE {collation}`

// Existing returns the stored events of these ids.
func (s *Store) Existing(ctx context.Context, tx store.SQLTx, ids []string) ([]waybill.Event, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	events, err := collect(ctx, ownTx{s, tx}, func(rows *sql.Rows) (waybill.Event, error) {
		var scan eventScan
		err := rows.Scan(scan.targets()...)
		return scan.finish(), err
	}, existingSQL, list(validTexts(ids)))
	return events, failure("existing", "", err)
}

// validTexts leaves out what cannot be in a text column, and so is not there.
func validTexts(texts []string) []string {
	valid := make([]string, 0, len(texts))
	for _, text := range texts {
		if strings.ToValidUTF8(text, "") == text {
			valid = append(valid, text)
		}
	}
	return valid
}

// keyOf names what a failed append was about.
func keyOf(events []waybill.Event) string {
	if len(events) == 1 {
		return events[0].ID
	}
	return ""
}
