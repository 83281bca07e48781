package reconcile

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/internal/fault"
)

// fold makes one row anew by the consumer's handler. The row is locked first,
// so that what the consumer's books say of its key is what the row shows: a
// consumer that comes later waits, and then goes on from the row as it is left.
// For that the row must stay the same row. So it is removed, made anew and read
// behind a savepoint, all of that is undone, and the result is written over it.
func (b *rebuild) fold(ctx context.Context, f *Facts) (done bool, err error) {
	counted := *b.out
	conn, err := b.bases.read.DB.Conn(ctx)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	limited, cancel := b.bases.limit(ctx)
	defer cancel()
	if err := b.beginWriting(limited, conn); err != nil {
		return false, &waybill.Error{Op: "rebuild", Key: f.Key.String(), Err: err}
	}
	done, err = b.foldIn(limited, conn, f)
	end := "COMMIT"
	if err != nil || !done || b.out.DryRun {
		end = "ROLLBACK"
	}
	fault.Point("reconcile-fold-" + strings.ToLower(end))
	if _, ending := conn.ExecContext(context.WithoutCancel(ctx), end); ending != nil && err == nil {
		done, err = false, ending
	}
	if err != nil || !done {
		b.out.Rows, b.out.Written, b.out.Removed, b.out.Unchanged = counted.Rows, counted.Written, counted.Removed, counted.Unchanged
	}
	if err != nil && f.Read == nil {
		if there, readErr := b.row(ctx, conn, f.Key); readErr == nil && there != nil {
			return false, nil // inserted by the consumer meanwhile
		}
	}
	if err != nil {
		return false, &waybill.Error{Op: "rebuild", Key: f.Key.String(), Err: err}
	}
	return done, nil
}

func (b *rebuild) beginWriting(ctx context.Context, conn *sql.Conn) error {
	statements := []string{"BEGIN ISOLATION LEVEL READ COMMITTED"}
	switch b.bases.read.Dialect.family() {
	case SQLite:
		statements = []string{"BEGIN IMMEDIATE"}
	case MySQL:
		statements = []string{"SET TRANSACTION ISOLATION LEVEL READ COMMITTED", "START TRANSACTION"}
	}
	for _, statement := range statements {
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// history reads the events of a key, through the connection at hand where the
// log is in the same database: it may be the only one.
func (b *rebuild) history(ctx context.Context, conn *sql.Conn, key Key) ([]past, error) {
	var q queryer = conn
	if b.bases.log.DB != b.bases.read.DB {
		q = b.bases.log.DB
	}
	history, err := b.bases.past(ctx, q, key)
	if err != nil || b.archive == nil {
		return history, err
	}
	archived, err := b.archive.past(ctx, q, key)
	return joinPast(history, archived), err
}

// foldIn does the work inside of a transaction. Not done means that the row
// is another than the one that was read.
func (b *rebuild) foldIn(ctx context.Context, conn *sql.Conn, f *Facts) (bool, error) {
	before, err := b.image(ctx, conn, f.Key, true)
	if err != nil {
		return false, err
	}
	version, err := b.versionIn(before)
	if err != nil || (before == nil) != (f.Read == nil) || before != nil && version != f.Read.Version {
		return false, err
	}
	// What the row shows, and a delete that left none, is in the log by now.
	history, err := b.history(ctx, conn, f.Key)
	if err != nil {
		return false, err
	}
	events, refusal, err := b.appliedOf(ctx, conn, f, history)
	switch {
	case err != nil:
		return false, err
	case refusal != "":
		b.refuse(f, refusal)
		return true, nil
	case events == nil && before == nil:
		return true, nil
	}
	after, refusal, err := b.rehearse(ctx, conn, f, events)
	switch {
	case err != nil:
		return false, err
	case refusal != "":
		b.refuse(f, refusal)
		return true, nil
	}
	if err := b.overwrite(ctx, conn, f, before, after); err != nil || before != nil || after == nil {
		return err == nil, err
	}
	// A row that was absent could not be locked: the consumer may have applied
	// more, and deleted it again, before it was inserted here.
	again, err := b.history(ctx, conn, f.Key)
	return len(again) == len(history), err
}

func (b *rebuild) versionIn(row *image) (int64, error) {
	if row == nil {
		return 0, nil
	}
	i := slices.Index(row.names, b.table.Version)
	if i < 0 {
		return 0, fmt.Errorf("%s has no column %s", b.table.Table, b.table.Version)
	}
	return versionOf(row.unquoted(i))
}

// appliedOf returns the events that the row must show, or why that cannot be
// known.
func (b *rebuild) appliedOf(ctx context.Context, conn *sql.Conn, f *Facts, history []past) (events []past, refusal string, err error) {
	upTo, skip := int64(minVersion), map[string]bool{}
	if b.check.Consumer == nil {
		for i := range history {
			if history[i].state == StateSent {
				upTo = max(upTo, history[i].version)
			}
		}
	} else {
		fates, err := b.fates(ctx, conn, history)
		if err != nil {
			return nil, "", err
		}
		for i := range history {
			fate, known := fates[history[i].event.ID]
			if known && fate.Fate == FateApplied {
				upTo = max(upTo, history[i].version)
			} else if known {
				skip[history[i].event.ID] = true
			}
		}
		if upTo == minVersion && f.Read != nil {
			upTo = f.Read.Version // its books are younger than the row
		}
		if upTo == minVersion && len(history) > 0 && len(fates) == 0 && b.isLate(history) {
			return nil, "the consumer's books do not say what it has applied", nil
		}
	}
	top := int64(minVersion)
	if len(history) > 0 {
		top = history[len(history)-1].version
	}
	switch {
	case f.Read != nil && len(history) == 0:
		return nil, "the log has no event of it", nil
	case f.Read != nil && f.Read.Version > top:
		return nil, fmt.Sprintf("the log ends at v%d, the read model is at v%d", top, f.Read.Version), nil
	case f.Read != nil && b.check.Consumer == nil:
		upTo = max(upTo, f.Read.Version) // of an event that is about to be marked as sent
	}
	next := *b.check.FirstVersion
	for i := range history {
		e := &history[i]
		if e.version > upTo {
			break
		}
		if (b.rules.Delta || b.rules.EveryVersion) && e.version > next {
			return nil, fmt.Sprintf("the log lacks v%d", next), nil
		}
		next = max(next, e.version+1)
		if !skip[e.event.ID] && e.state != StateSkipped {
			events = append(events, *e)
		}
	}
	return events, "", nil
}

// isLate reports whether the consumer must have had the first event by now.
func (b *rebuild) isLate(history []past) bool {
	b.now()
	return history[0].state == StateSent && !within(history[0].event.OccurredAt, b.rules.Deadline, b.rules.Now)
}

// fates asks the consumer's books in the transaction that has locked the row.
func (b *rebuild) fates(ctx context.Context, conn *sql.Conn, history []past) (map[string]Consumed, error) {
	fates := make(map[string]Consumed)
	const batch = 500
	for from := 0; from < len(history); from += batch {
		var ids []string
		for i := from; i < min(from+batch, len(history)); i++ {
			ids = append(ids, history[i].event.ID)
		}
		for _, s := range []*statement{b.bases.settled(ids), b.bases.held(ids)} {
			if err := scan(ctx, conn, s, func(_ []column, got []any) error {
				fates[textAt(got, 0)] = Consumed{Fate: Fate(textAt(got, 1))}
				return nil
			}); err != nil {
				return nil, fmt.Errorf("consumer: %w", err)
			}
		}
	}
	return fates, nil
}

// rehearse lets the handler make the row from nothing, and undoes it.
func (b *rebuild) rehearse(ctx context.Context, conn *sql.Conn, f *Facts, events []past) (after *image, refusal string, err error) {
	if _, err := conn.ExecContext(ctx, "SAVEPOINT waybill_fold"); err != nil {
		return nil, "", err
	}
	after, refusal, err = b.play(ctx, conn, f, events)
	if _, undone := conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK TO SAVEPOINT waybill_fold"); undone != nil && err == nil {
		err = undone // MySQL has undone the whole transaction if there was a deadlock
	}
	return after, refusal, err
}

func (b *rebuild) play(ctx context.Context, conn *sql.Conn, f *Facts, events []past) (after *image, refusal string, err error) {
	s := (&statement{dialect: b.bases.read.Dialect}).add("DELETE FROM %s", b.name())
	b.bases.read.Dialect.keys(b.table, b.bases.kinds).where(s, Range{only: &f.Key})
	filter(s, b.table)
	if _, err := conn.ExecContext(ctx, s.text.String(), s.args...); err != nil {
		return nil, "", err
	}
	for i := range events {
		if err := b.config.Fold(ctx, conn, events[i].event); err != nil {
			if ctx.Err() != nil {
				return nil, "", ctx.Err()
			}
			return nil, fmt.Sprintf("the handler refuses v%d (%s): %v", events[i].version, events[i].event.ID, err), nil
		}
	}
	if after, err = b.image(ctx, conn, f.Key, false); err != nil || after == nil || len(events) == 0 {
		return after, "", err
	}
	version, err := b.versionIn(after)
	if last := events[len(events)-1].version; err == nil && version != last {
		return nil, fmt.Sprintf("the handler leaves v%d after the event of v%d", version, last), nil
	}
	return after, "", err
}

// name is the quoted name of the table that is written to.
func (b *rebuild) name() string { return b.bases.read.Dialect.table(b.table) }

// overwrite brings the row from one image to the other.
func (b *rebuild) overwrite(ctx context.Context, conn *sql.Conn, f *Facts, before, after *image) error {
	d := b.bases.read.Dialect
	s := &statement{dialect: d}
	count := &b.out.Written
	switch {
	case before == nil && after == nil:
		return nil
	case after == nil:
		count = &b.out.Removed
		s.add("DELETE FROM %s", b.name())
	case before == nil:
		b.out.Rows++
		columns, places := make([]string, len(after.names)), make([]string, len(after.names))
		for i, name := range after.names {
			columns[i], places[i] = d.quote(name), after.bind(s, i)
		}
		s.add("INSERT INTO %s (%s) VALUES (%s)", b.name(), strings.Join(columns, ", "), strings.Join(places, ", "))
	default:
		b.out.Rows++
		var changes []string
		matters := false
		for i, name := range after.names {
			if after.same(before, i) {
				continue
			}
			matters = matters || name != b.table.UpdatedAt
			changes = append(changes, d.quote(name)+" = "+after.bind(s, i))
		}
		if !matters {
			b.out.Unchanged++
			return nil
		}
		s.add("UPDATE %s SET %s", b.name(), strings.Join(changes, ", "))
	}
	*count++
	if b.out.DryRun {
		return nil
	}
	if before != nil {
		d.keys(b.table, b.bases.kinds).where(s, Range{only: &f.Key})
		filter(s, b.table)
	}
	_, err := conn.ExecContext(ctx, s.text.String(), s.args...)
	return err
}
