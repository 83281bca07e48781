package reconcile

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/waybillhq/waybill"
)

const selectFindingsSQL = `
SELECT id, check_name, class, side, finding_key, stored_key, state, detail, causes, missing, sample, seen,
       first_seen, last_seen, resolved_at, first_run, last_run, ignored_until, decided_by, reason
FROM {finding}`

// ListFindings implements [Findings].
func (l *Ledger) ListFindings(ctx context.Context, filter FindingFilter) ([]FindingRecord, error) {
	var conditions []string
	var args []any
	add := func(condition string, values ...any) {
		conditions, args = append(conditions, condition), append(args, values...)
	}
	if filter.Check != "" {
		add("check_name = ?", filter.Check)
	}
	if filter.Class != "" {
		add("class = ?", filter.Class)
	}
	if filter.Key != "" {
		add("finding_key = ?", filter.Key)
	}
	if len(filter.States) > 0 {
		places := strings.TrimSuffix(strings.Repeat("?, ", len(filter.States)), ", ")
		var states []any
		for _, state := range filter.States {
			states = append(states, state)
		}
		add("state IN ("+places+")", states...)
	}
	query := selectFindingsSQL
	if len(conditions) > 0 {
		query += " WHERE " + strings.Join(conditions, " AND ")
	}
	query += " ORDER BY first_seen DESC, id"
	if filter.Limit > 0 {
		query, args = query+" LIMIT ?", append(args, filter.Limit)
	}
	found, err := l.selectFindings(ctx, query, args)
	return found, l.failed("list findings", filter.Check, err)
}

func (l *Ledger) selectFindings(ctx context.Context, query string, args []any) ([]FindingRecord, error) {
	found := []FindingRecord{}
	err := l.rows(ctx, l.db.DB, query, args, func(r *ledgerRow) error {
		f := FindingRecord{
			ID: r.text(), Check: r.text(), Class: Class(r.text()), Side: Side(r.text()), Key: r.text(), StoredKey: r.text(), State: FindingState(r.text()), Detail: r.text(),
		}
		if err := json.Unmarshal([]byte(r.text()), &f.Causes); err != nil {
			return fmt.Errorf("finding %s: %w", f.ID, err)
		}
		f.Missing, f.Sample, f.Seen = r.number(), json.RawMessage(r.text()), r.number()
		f.FirstSeen, f.LastSeen, f.ResolvedAt = r.time(), r.time(), r.timeOrNil()
		f.FirstRun, f.LastRun = r.text(), r.text()
		f.Until, f.By, f.Reason = r.timeOrNil(), r.text(), r.text()
		found = append(found, f)
		return nil
	})
	return found, err
}

// FindFinding implements [Findings].
func (l *Ledger) FindFinding(ctx context.Context, id string) (*FindingRecord, error) {
	found, err := l.selectFindings(ctx, selectFindingsSQL+" WHERE id = ?", []any{id})
	if err == nil && len(found) == 0 {
		err = &waybill.Error{Op: "find finding", Key: id, Err: ErrNoFinding, Hint: "waybill reconcile findings list shows them"}
	}
	if err != nil {
		return nil, l.failed("find finding", id, err)
	}
	return &found[0], nil
}

const decideSQL = `
UPDATE {finding}
SET state = ?, ignored_until = ?, decided_by = ?, reason = ?
WHERE id = ? AND state <> 'RESOLVED'`

// Decide implements [Findings].
func (l *Ledger) Decide(ctx context.Context, id string, d Decision) (*FindingRecord, error) {
	if !slices.Contains([]FindingState{FindingOpen, FindingIgnored, FindingAwaiting}, d.State) {
		return nil, &waybill.Error{Op: "decide", Key: id, Err: fmt.Errorf("a finding does not become %q by decision", d.State)}
	}
	if strings.TrimSpace(d.By) == "" || strings.TrimSpace(d.Reason) == "" {
		return nil, &waybill.Error{Op: "decide", Key: id, Err: errors.New("who decided, and why, is kept with the finding: both are needed")}
	}
	if _, err := l.exec(ctx, l.db.DB, decideSQL, d.State, d.Until, d.By, d.Reason, id); err != nil {
		return nil, l.failed("decide", id, err)
	}
	found, err := l.FindFinding(ctx, id)
	if err == nil && found.State == FindingResolved {
		err = &waybill.Error{Op: "decide", Key: id, Err: ErrResolved, Hint: "it opens by itself if it comes back"}
	}
	return found, err
}

const insertFindingSQL = `
INSERT INTO {finding} (id, check_name, class, side, finding_key, stored_key, state, detail, causes, missing, sample, digest, seen,
                       first_seen, last_seen, first_run, last_run)
VALUES (?, ?, ?, ?, ?, ?, 'OPEN', ?, ?, ?, ?, ?, 1, ?, ?, ?, ?)`

// seenAgainSQL is for a finding that looks as it did. MySQL evaluates from left
// to right, so what is asked of a column comes before its change.
const seenAgainSQL = `
UPDATE {finding}
SET seen = seen + 1, last_seen = ?, last_run = ?
WHERE id IN (%s)`

// seenChangedSQL is for one that looks otherwise, or was resolved.
const seenChangedSQL = `
UPDATE {finding}
SET detail = ?, causes = ?, missing = ?, sample = ?, digest = ?, side = ?,
    seen = CASE WHEN state = 'RESOLVED' THEN 1 ELSE seen + 1 END,
    first_seen = CASE WHEN state = 'RESOLVED' THEN ? ELSE first_seen END,
    first_run = CASE WHEN state = 'RESOLVED' THEN ? ELSE first_run END,
    last_seen = ?, last_run = ?, resolved_at = NULL,
    state = CASE WHEN state = 'RESOLVED' THEN 'OPEN' ELSE state END
WHERE id = ?`

const resolveSQL = `
UPDATE {finding}
SET state = 'RESOLVED', resolved_at = ?
WHERE state <> 'RESOLVED' AND id IN (%s)`

// reopenSQL opens what was ignored for a time that is over.
const reopenSQL = `
UPDATE {finding}
SET state = 'OPEN'
WHERE check_name = ? AND state = 'IGNORED' AND ignored_until <= {now}`

const digestsSQL = `
SELECT id, state, digest
FROM {finding}
WHERE id IN (%s)`

// atOnce is how many findings a statement names.
const atOnce = 500

func (l *Ledger) recordFindings(ctx context.Context, tx executor, o *Outcome) error {
	if _, err := l.exec(ctx, tx, reopenSQL, o.Run.Check); err != nil {
		return err
	}
	for some := range slices.Chunk(o.Found, atOnce) {
		if err := l.recordSome(ctx, tx, o.Run.ID, some); err != nil {
			return err
		}
	}
	for some := range slices.Chunk(o.Resolved, atOnce) {
		args := []any{o.at()}
		for _, id := range some {
			args = append(args, id)
		}
		if _, err := l.exec(ctx, tx, fmt.Sprintf(resolveSQL, places(len(some))), args...); err != nil {
			return err
		}
	}
	return nil
}

func (l *Ledger) recordSome(ctx context.Context, tx executor, run string, found []FindingRecord) error {
	ids := make([]any, len(found))
	for i := range found {
		ids[i] = found[i].ID
	}
	known := make(map[string]string) // id to digest, of unresolved ones
	exists := make(map[string]bool)
	if err := l.rows(ctx, tx, fmt.Sprintf(digestsSQL, places(len(ids))), ids, func(r *ledgerRow) error {
		id, state, digest := r.text(), r.text(), r.text()
		exists[id] = true
		if FindingState(state) != FindingResolved {
			known[id] = digest
		}
		return nil
	}); err != nil {
		return err
	}
	var same []any
	for i := range found {
		f := &found[i]
		causes, err := json.Marshal(f.Causes)
		if err != nil {
			return err
		}
		digest := digestOf(f)
		switch {
		case !exists[f.ID]:
			_, err = l.exec(ctx, tx, insertFindingSQL, f.ID, f.Check, f.Class, f.Side, f.Key, f.StoredKey, f.Detail, string(causes), f.Missing, string(f.Sample), digest,
				f.LastSeen, f.LastSeen, run, run)
		case known[f.ID] == digest:
			same = append(same, f.ID)
		default:
			_, err = l.exec(ctx, tx, seenChangedSQL, f.Detail, string(causes), f.Missing, string(f.Sample), digest, f.Side, f.LastSeen, run, f.LastSeen, run, f.ID)
		}
		if err != nil {
			return err
		}
	}
	if len(same) == 0 {
		return nil
	}
	_, err := l.exec(ctx, tx, fmt.Sprintf(seenAgainSQL, places(len(same))), append([]any{found[0].LastSeen, run}, same...)...)
	return err
}

func digestOf(f *FindingRecord) string {
	sum := sha256.Sum256(append([]byte(f.Detail+"\x00"), f.Sample...))
	return hex.EncodeToString(sum[:16])
}

func places(n int) string { return strings.TrimSuffix(strings.Repeat("?, ", n), ", ") }

// at is the time of an outcome: when its findings were last seen.
func (o *Outcome) at() time.Time {
	if o.Run.FinishedAt != nil {
		return *o.Run.FinishedAt
	}
	for i := range o.Found {
		return o.Found[i].LastSeen
	}
	return o.Run.StartedAt
}

const countFindingsSQL = `
SELECT class, state, COUNT(*), MIN(first_seen), MAX(first_seen)
FROM {finding}
WHERE check_name = ? AND state <> 'RESOLVED'
GROUP BY class, state`

func (l *Ledger) countFindings(ctx context.Context, s *Standing) error {
	s.Open, s.OpenSince, s.NewestOpen = make(map[Class]int), make(map[Class]time.Time), make(map[Class]time.Time)
	for _, class := range Classes {
		if class.Difference() {
			s.Open[class] = 0
		}
	}
	err := l.rows(ctx, l.db.DB, countFindingsSQL, []any{s.Check}, func(r *ledgerRow) error {
		class, state, n, oldest, newest := Class(r.text()), FindingState(r.text()), int(r.number()), r.time(), r.time()
		switch state {
		case FindingOpen:
			s.Open[class], s.OpenSince[class], s.NewestOpen[class] = n, oldest, newest
		case FindingIgnored:
			s.Ignored += n
		case FindingAwaiting:
			s.Awaiting += n
		}
		return nil
	})
	return l.failed("count findings", s.Check, err)
}
