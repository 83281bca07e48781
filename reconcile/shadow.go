package reconcile

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/internal/fault"
)

// A rebuild by a copy goes through these steps; killed at any of them, the next
// one begins by removing what the last one left, and the table is either the old
// one or the new one:
//
//  1. make an empty table like the read model
//  2. range by range: copy the rows, and bring them to the log
//  3. compare the two tables, and bring over what the consumer changed meanwhile,
//     until little is left
//  4. let writers wait, bring over the rest, swap, remove the old table
//
// What to bring over is found by comparing versions. A row that the rebuild
// itself has changed differs too; it is left out by what the read model had of
// it when it was brought.
type shadow struct {
	*rebuild
	live  *Table            // the read model
	marks map[string]origin // by the order of the key
}

// origin is what the read model had of a key that the copy has otherwise.
type origin struct {
	there   bool
	version int64
}

const (
	shadowRounds = 5   // of comparing, before giving up
	shadowRest   = 500 // keys that may be left for the time in which writers wait
	shadowLocks  = 10  // attempts to make writers wait
)

func (b *rebuild) shadow(ctx context.Context) error {
	fail := func(err error) error {
		return &waybill.Error{Op: "rebuild by a copy", Key: b.check.Read.Table, Err: err}
	}
	live := *b.check.Read
	copied := live
	copied.Table = shadowName(live.Table)
	s := &shadow{rebuild: b, live: &live, marks: make(map[string]origin)}
	b.table = &copied
	if err := s.swappable(ctx); err != nil {
		return fail(err)
	}
	if err := s.run(ctx, "start", s.dropCopy(), s.createCopy()); err != nil {
		return fail(err)
	}
	if err := s.fill(ctx); err != nil {
		return fail(err)
	}
	fault.Point("reconcile-shadow-filled")
	if err := s.follow(ctx); err != nil {
		return fail(err)
	}
	fault.Point("reconcile-shadow-followed")
	if err := s.swap(ctx); err != nil {
		return fail(err)
	}
	b.out.Swapped = true
	return nil
}

// shadowName is a name that nothing else has.
func shadowName(table string) string { return table + "_waybill_new" }

// run executes statements that are written for the moment.
func (s *shadow) run(ctx context.Context, step string, lists ...[]string) error {
	for _, list := range lists {
		for _, text := range list {
			if _, err := s.on.ExecContext(ctx, text); err != nil {
				return fmt.Errorf("%s: %w", step, err)
			}
			fault.Point("reconcile-shadow-" + step)
		}
	}
	return nil
}

// fill copies range by range, and brings each to the log.
func (s *shadow) fill(ctx context.Context) error {
	var from *Key
	for {
		to, err := s.boundary(ctx, from)
		if err != nil {
			return err
		}
		if err := s.fillRange(ctx, Range{From: from, To: to}); err != nil {
			return err
		}
		fault.Point("reconcile-shadow-range")
		if to == nil {
			return nil
		}
		from = to
	}
}

// fillRange does so in one transaction. A write that fails, because the copy has
// a row that the facts do not have, would end it on some databases: then each
// write goes by itself.
func (s *shadow) fillRange(ctx context.Context, whole Range) error {
	found, err := s.facts(ctx, whole)
	if err != nil {
		return err
	}
	before := *s.out
	if s.together(ctx, whole, slices.Clone(found)) == nil {
		return nil
	}
	*s.out = before
	if err := s.renew(ctx, whole); err != nil {
		return err
	}
	for i := range found {
		if err := s.bring(ctx, &found[i]); err != nil {
			return err
		}
	}
	return nil
}

func (s *shadow) together(ctx context.Context, whole Range, found []Facts) (err error) {
	conn, err := s.bases.read.DB.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() {
		s.on = s.bases.read.DB
		_ = conn.Close()
	}()
	if err := s.beginWriting(ctx, conn); err != nil {
		return err
	}
	s.on = conn
	err = s.copyRows(ctx, whole)
	for i := range found {
		if err == nil {
			err = s.bring(ctx, &found[i])
		}
	}
	if err == nil {
		if _, err = conn.ExecContext(ctx, "COMMIT"); err == nil {
			return nil
		}
	}
	_, _ = conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
	return err
}

func (s *shadow) copyRows(ctx context.Context, whole Range) error {
	d := s.bases.read.Dialect
	text := (&statement{dialect: d}).add("INSERT INTO %s SELECT * FROM %s", d.table(s.table), d.table(s.live))
	d.keys(s.live, s.bases.kinds).where(text, whole)
	limited, cancel := s.bases.limit(ctx)
	defer cancel()
	_, err := s.on.ExecContext(limited, text.text.String(), text.args...)
	return err
}

// bring makes the copy's row of a key what the log says. Each write is on the
// condition that the copy has the row that the facts have; it may have it from
// another moment, and is then copied again.
func (s *shadow) bring(ctx context.Context, f *Facts) error {
	const tries = 5
	for range tries {
		seen := origin{there: f.Read != nil}
		if f.Read != nil {
			seen.version = f.Read.Version
		}
		written := s.out.Written + s.out.Removed
		done, err := s.try(ctx, f)
		if err != nil {
			return err
		}
		if done {
			if s.out.Written+s.out.Removed != written {
				s.marks[f.Key.order] = seen
			}
			return nil
		}
		if err := s.renew(ctx, Range{only: &f.Key}); err != nil {
			return err
		}
		again, err := s.latest(ctx, []Key{f.Key})
		if err != nil {
			return err
		}
		*f = again[0]
	}
	return fmt.Errorf("key %s changes faster than it can be read", f.Key)
}

// renew copies rows again.
func (s *shadow) renew(ctx context.Context, whole Range) error {
	d := s.bases.read.Dialect
	text := (&statement{dialect: d}).add("DELETE FROM %s", d.table(s.table))
	d.keys(s.table, s.bases.kinds).where(text, whole)
	if _, err := s.on.ExecContext(ctx, text.text.String(), text.args...); err != nil {
		return err
	}
	return s.copyRows(ctx, whole)
}

// follow brings over what the consumer changes, until little is left.
func (s *shadow) follow(ctx context.Context) error {
	for range shadowRounds {
		keys, err := s.changedKeys(ctx)
		if err != nil {
			return err
		}
		if err := s.bringAgain(ctx, keys); err != nil {
			return err
		}
		if len(keys) <= shadowRest {
			return nil
		}
	}
	return errors.New("the read model changes faster than it can be followed; rebuild in place, or when there is less to do")
}

// bringAgain brings keys anew, from what the read model has now. They have been
// counted before, or are the consumer's work.
func (s *shadow) bringAgain(ctx context.Context, keys []Key) error {
	counted := *s.out
	defer func() {
		s.out.Rows, s.out.Written, s.out.Removed, s.out.Unchanged = counted.Rows, counted.Written, counted.Removed, counted.Unchanged
	}()
	const batch = 200 // what the consumer has changed is right most of the time, once it is copied
	for some := range slices.Chunk(keys, batch) {
		if err := s.renew(ctx, Range{among: some}); err != nil {
			return err
		}
		found, err := s.latest(ctx, some)
		if err != nil {
			return err
		}
		for i := range found {
			delete(s.marks, found[i].Key.order)
			if err := s.bring(ctx, &found[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// latest reads the facts of keys so that it can be done while writers wait: the
// read model through the connection that makes them wait.
func (s *shadow) latest(ctx context.Context, keys []Key) ([]Facts, error) {
	d := s.bases.read.Dialect
	rows, err := s.bases.rows(ctx, s.on, d, s.live, Range{among: keys}, func(i int) string { return s.check.Compare[i].in(s.check.Compare[i].Read) })
	if err != nil {
		return nil, err
	}
	found, place := make([]Facts, len(keys)), make(map[string]int, len(keys))
	for i, key := range keys {
		found[i].Key, place[key.order] = key, i
	}
	for _, row := range rows {
		found[place[row.Key.order]].Read = row.Item
	}
	// After the rows: whatever they show is in the log by now.
	ctx, cancel := s.bases.limit(ctx)
	defer cancel()
	for _, t := range []*tables{s.bases, s.archive} {
		if t == nil {
			continue
		}
		events, err := t.eventRows(ctx, s.logReader(), Range{among: keys})
		if err != nil {
			return nil, err
		}
		for _, item := range events {
			f := &found[place[item.Key.order]]
			f.Log = joinEvents(f.Log, item.Item)
		}
	}
	return found, nil
}

// changedKeys compares the two tables by version, less what the rebuild itself
// has changed.
func (s *shadow) changedKeys(ctx context.Context) (keys []Key, err error) {
	for _, text := range s.comparisons() {
		err := scan(ctx, s.on, (&statement{dialect: s.bases.read.Dialect}).add("%s", text), func(_ []column, got []any) error {
			n := len(s.bases.kinds)
			key, err := NewKey(s.bases.kinds, got[:n])
			if err != nil {
				return err
			}
			now := origin{there: got[n] != nil}
			if now.there {
				if now.version, err = versionOf(got[n]); err != nil {
					return err
				}
			}
			if known, ok := s.marks[key.order]; !ok || known != now {
				keys = append(keys, key)
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("compare: %w", err)
		}
	}
	slices.SortFunc(keys, Key.Compare)
	return keys, nil
}
