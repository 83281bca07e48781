package reconcile

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/waybillhq/waybill/internal/fault"
)

const runColumns = `id, check_name, mode, state, owner, definition, changed_since, started_at, finished_at,
       keys_compared, differences, in_flight, unverified, healed, complete, error, counts`

const interruptRunsSQL = `
UPDATE {run}
SET state = 'INTERRUPTED', finished_at = {now}, error = 'its process ended'
WHERE check_name = ? AND state = 'RUNNING' AND (mode <> 'weekly' OR definition <> ?)`

const insertRunSQL = `
INSERT INTO {run} (id, check_name, mode, state, owner, definition, changed_since, started_at,
                   keys_compared, differences, in_flight, unverified, healed, complete, counts)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0, 0, 0, 0, 0, 0, '{}')`

// unfinishedSweepSQL finds the weekly run to go on with.
const unfinishedSweepSQL = `
SELECT ` + runColumns + `
FROM {run}
WHERE check_name = ? AND state = 'RUNNING' AND mode = 'weekly' AND definition = ?
ORDER BY started_at`

const selectRangesSQL = `
SELECT seq, from_key, to_key, keys_compared, verified, error, report
FROM {range}
WHERE run_id = ?
ORDER BY seq`

// Begin implements [Results].
func (l *Ledger) Begin(ctx context.Context, lease Lease, run *RunRecord) (*Past, error) {
	past := &Past{}
	err := l.transaction(ctx, func(tx executor) error {
		if err := l.hold(ctx, tx, lease); err != nil {
			return err
		}
		if err := l.rows(ctx, tx, "SELECT {now}", nil, func(r *ledgerRow) error {
			past.Now = r.time()
			return nil
		}); err != nil {
			return err
		}
		if _, err := l.exec(ctx, tx, interruptRunsSQL, run.Check, run.Definition); err != nil {
			return err
		}
		if run.Mode == ModeWeekly {
			if err := l.unfinished(ctx, tx, run, past); err != nil || past.Continued != nil {
				return err
			}
		}
		if run.StartedAt.IsZero() {
			run.StartedAt = past.Now
		}
		_, err := l.exec(ctx, tx, insertRunSQL, run.ID, run.Check, run.Mode, RunRunning, run.Owner, run.Definition, run.Since, run.StartedAt)
		return err
	})
	if err == nil {
		past.Open, err = l.ListFindings(ctx, FindingFilter{Check: run.Check, States: []FindingState{FindingOpen, FindingIgnored, FindingAwaiting}})
	}
	if err == nil {
		past.Behind, err = l.behind(ctx, run.Check)
	}
	if err == nil {
		past.Coverage, err = l.coverage(ctx, run.Check)
	}
	if err != nil {
		return nil, l.failed("begin run", run.Check, err)
	}
	return past, nil
}

func (l *Ledger) unfinished(ctx context.Context, q queryer, run *RunRecord, past *Past) error {
	if err := l.rows(ctx, q, unfinishedSweepSQL, []any{run.Check, run.Definition}, func(r *ledgerRow) error {
		record := runOf(r)
		past.Continued = &record
		return nil
	}); err != nil || past.Continued == nil {
		return err
	}
	return l.rows(ctx, q, selectRangesSQL, []any{past.Continued.ID}, func(r *ledgerRow) error {
		past.Ranges = append(past.Ranges, RangeRecord{
			Seq: int(r.number()), From: r.text(), To: r.text(), Keys: r.number(), Verified: r.number() == 1, Error: r.text(), Report: json.RawMessage(r.text()),
		})
		return nil
	})
}

func runOf(r *ledgerRow) RunRecord {
	record := RunRecord{
		ID: r.text(), Check: r.text(), Mode: Mode(r.text()), State: RunState(r.text()), Owner: r.text(), Definition: r.text(),
		Since: r.timeOrNil(), StartedAt: r.time(), FinishedAt: r.timeOrNil(),
		Keys: r.number(), Differences: int(r.number()), InFlight: int(r.number()), Unverified: int(r.number()), Healed: int(r.number()),
		Complete: r.number() == 1, Error: r.text(),
	}
	_ = json.Unmarshal([]byte(r.text()), &record.Counts) // written by updateRun
	return record
}

const updateRunSQL = `
UPDATE {run}
SET state = ?, owner = ?, changed_since = ?, finished_at = ?, keys_compared = ?, differences = ?, in_flight = ?, unverified = ?, healed = ?,
    complete = ?, error = ?, counts = ?, report = ?
WHERE id = ?`

const insertRangeSQL = `
INSERT INTO {range} (run_id, seq, from_key, to_key, keys_compared, verified, error, recorded_at, report)
VALUES (?, ?, ?, ?, ?, ?, ?, {now}, ?)`

// forgetStretchesSQL drops the reports of stretches, once the whole is there.
const forgetStretchesSQL = `
UPDATE {range}
SET report = NULL
WHERE run_id = ? AND report IS NOT NULL`

// Record implements [Results].
func (l *Ledger) Record(ctx context.Context, lease Lease, o *Outcome) error {
	err := l.transaction(ctx, func(tx executor) error {
		if err := l.hold(ctx, tx, lease); err != nil {
			return err
		}
		run := &o.Run
		counts, err := json.Marshal(run.Counts)
		if err != nil {
			return err
		}
		if _, err := l.exec(ctx, tx, updateRunSQL, run.State, run.Owner, run.Since, run.FinishedAt, run.Keys, run.Differences, run.InFlight, run.Unverified, run.Healed,
			run.Complete, orNull(run.Error), string(counts), orNull(string(o.Report)), run.ID); err != nil {
			return err
		}
		for i := range o.Ranges {
			r := &o.Ranges[i]
			if _, err := l.exec(ctx, tx, insertRangeSQL, run.ID, r.Seq, orNull(r.From), orNull(r.To), r.Keys, r.Verified, orNull(r.Error), orNull(string(r.Report))); err != nil {
				return err
			}
		}
		if run.State == RunDone {
			if _, err := l.exec(ctx, tx, forgetStretchesSQL, run.ID); err != nil {
				return err
			}
		}
		fault.Point("reconcile.recording")
		if err := l.recordFindings(ctx, tx, o); err != nil {
			return err
		}
		if err := l.recordBehind(ctx, tx, o); err != nil {
			return err
		}
		return l.recordCoverage(ctx, tx, o)
	})
	if err == nil {
		fault.Point("reconcile.recorded")
	}
	return l.failed("record run", o.Run.Check, err)
}

func orNull(text string) any {
	if text == "" {
		return nil
	}
	return text
}

const selectRunsSQL = `
SELECT ` + runColumns + `
FROM {run}`

// Runs implements [History].
func (l *Ledger) Runs(ctx context.Context, check string, limit int) ([]RunRecord, error) {
	return l.selectRuns(ctx, check, "", limit)
}

func (l *Ledger) selectRuns(ctx context.Context, check, where string, limit int) ([]RunRecord, error) {
	var conditions []string
	var args []any
	if check != "" {
		conditions, args = append(conditions, "check_name = ?"), append(args, check)
	}
	if where != "" {
		conditions = append(conditions, where)
	}
	query := selectRunsSQL
	if len(conditions) > 0 {
		query += " WHERE " + strings.Join(conditions, " AND ")
	}
	query += " ORDER BY started_at DESC, id DESC"
	if limit > 0 {
		query, args = query+" LIMIT ?", append(args, limit)
	}
	runs := []RunRecord{}
	err := l.rows(ctx, l.db.DB, query, args, func(r *ledgerRow) error {
		runs = append(runs, runOf(r))
		return nil
	})
	return runs, l.failed("list runs", check, err)
}

// RunReport returns the report of a run as JSON, with at most the first hundred
// of its findings; nil where there is none.
func (l *Ledger) RunReport(ctx context.Context, id string) (json.RawMessage, error) {
	var report json.RawMessage
	err := l.rows(ctx, l.db.DB, "SELECT report FROM {run} WHERE id = ?", []any{id}, func(r *ledgerRow) error {
		report = json.RawMessage(r.text())
		return nil
	})
	return report, l.failed("show run", id, err)
}

// Trend returns what the last complete run of each of the latest days has found,
// oldest day first. Runs of a few keys do not count, nor those of other
// definitions than the newest.
func (l *Ledger) Trend(ctx context.Context, check string, days int) ([]Day, error) {
	const where = "state = 'DONE' AND complete = 1 AND mode IN ('full', 'window', 'weekly')"
	runs, err := l.selectRuns(ctx, check, where, 0)
	if err != nil {
		return nil, err
	}
	var trend []Day
	for i := range runs {
		date := runs[i].FinishedAt.UTC().Format(time.DateOnly)
		if n := len(trend); n > 0 && trend[n-1].Date == date || runs[i].Definition != runs[0].Definition {
			continue
		}
		if len(trend) == days {
			break
		}
		trend = append(trend, Day{Date: date, Counts: runs[i].Counts})
	}
	slices.Reverse(trend)
	return trend, nil
}

// Standing implements [History].
func (l *Ledger) Standing(ctx context.Context, check string) (*Standing, error) {
	s := &Standing{Check: check}
	var err error
	if s.Now, err = l.now(ctx); err != nil {
		return nil, l.failed("read results", check, err)
	}
	if err := l.rows(ctx, l.db.DB, selectLeaseSQL, []any{check}, func(r *ledgerRow) error {
		owner, _, until := r.text(), r.number(), r.time()
		if until.After(s.Now) {
			s.Running = owner
		}
		return nil
	}); err != nil {
		return nil, l.failed("read results", check, err)
	}
	for _, one := range []struct {
		into  **RunRecord
		where string
	}{
		{&s.LastRun, "mode IN ('full', 'window', 'weekly')"},
		{&s.LastDone, "state = 'DONE' AND mode IN ('full', 'window')"},
		{&s.LastSweep, "state = 'DONE' AND mode IN ('full', 'weekly')"},
		{&s.Sweeping, "state = 'RUNNING' AND mode = 'weekly'"},
	} {
		runs, err := l.selectRuns(ctx, check, one.where, 1)
		if err != nil {
			return nil, err
		}
		if len(runs) > 0 {
			*one.into = &runs[0]
		}
	}
	if err := l.rows(ctx, l.db.DB, "SELECT MIN(started_at) FROM {run} WHERE check_name = ?", []any{check}, func(r *ledgerRow) error {
		s.FirstRun = r.timeOrNil()
		return nil
	}); err != nil {
		return nil, l.failed("read results", check, err)
	}
	if s.Coverage, err = l.coverage(ctx, check); err != nil {
		return nil, err
	}
	return s, l.countFindings(ctx, s)
}

// The runs to forget, with what belongs to them.
const (
	pruneRangesSQL = `
DELETE FROM {range}
WHERE run_id IN (SELECT id FROM {run} WHERE finished_at < ?)`
	pruneRunsSQL = `
DELETE FROM {run}
WHERE finished_at < ?`
	pruneFindingsSQL = `
DELETE FROM {finding}
WHERE state = 'RESOLVED' AND resolved_at < ?`
)

// Prune removes runs and resolved findings that are older than they are kept.
func (l *Ledger) Prune(ctx context.Context) error {
	at, err := l.now(ctx)
	for _, remove := range []string{pruneRangesSQL, pruneRunsSQL, pruneFindingsSQL} {
		if err == nil {
			_, err = l.exec(ctx, l.db.DB, remove, at.Add(-l.keep))
		}
	}
	return l.failed("prune results", "", err)
}
