package reconcile

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/internal/fault"
)

// window compares the keys that an arm has touched since a moment, and those
// that earlier runs want to see again. Only their names come from the list: each
// key is then read from all arms, so a key is judged by the whole of it whichever
// arm brought it up.
func (r *run) window(ctx context.Context, since time.Time) error {
	if since.IsZero() {
		since = r.clock.Now().Add(r.ahead - r.check.Window)
	}
	union := newUnion(r.check.kinds(), "")
	defer union.close()
	for _, key := range r.memory.again {
		if err := union.add(key); err != nil {
			return err
		}
	}
	if err := r.arms.changed(ctx, since, union.add); err != nil {
		return &waybill.Error{Op: "list changed keys", Key: r.check.Name, Err: err}
	}
	fault.Point("reconcile.listed")
	some := make([]Key, 0, amongKeys)
	for key, err := range union.sorted() {
		if err != nil {
			return err
		}
		if some = append(some, key); len(some) == amongKeys {
			if err := r.among(ctx, some); err != nil {
				return err
			}
			some = make([]Key, 0, amongKeys)
		}
	}
	return r.among(ctx, some)
}

// timed are the arms with the column that tells when a row changed.
func (t *tables) timed() (arms []timedArm) {
	if c := t.check.Write; c != nil && c.UpdatedAt != "" {
		arms = append(arms, timedArm{"write side", c, t.write, c.UpdatedAt})
	}
	if c := t.check.Log; c != nil && c.CreatedAt != "" {
		arms = append(arms, timedArm{"log", &c.Table, t.log, c.CreatedAt})
	}
	if c := t.check.Read; c != nil && c.UpdatedAt != "" {
		arms = append(arms, timedArm{"read side", c, t.read, c.UpdatedAt})
	}
	return arms
}

type timedArm struct {
	name     string
	table    *Table
	database Database
	column   string
}

// changed hands over the key of each row that was written since a moment, in no
// order and perhaps several times.
func (t *tables) changed(ctx context.Context, since time.Time, each func(Key) error) error {
	arms := t.timed()
	if len(arms) == 0 {
		return errors.New("no arm says when its rows changed: name updated_at, or created_at of the log")
	}
	for _, arm := range arms {
		if err := t.changedIn(ctx, arm, since, each); err != nil {
			return fmt.Errorf("%s: %w", arm.name, err)
		}
	}
	return nil
}

func (t *tables) changedIn(ctx context.Context, arm timedArm, since time.Time, each func(Key) error) error {
	ctx, cancel := t.limit(ctx)
	defer cancel()
	return arm.database.snapshot(ctx, func(q queryer) error {
		from, some, err := t.moment(ctx, q, arm, since)
		if err != nil || !some {
			return err
		}
		d := arm.database.Dialect
		s := &statement{dialect: d}
		k := d.keys(arm.table, t.kinds)
		s.add("SELECT %s FROM %s", k.selected(), d.table(arm.table))
		k.where(s, Range{})
		filter(s, arm.table)
		s.add(" AND %s >= %s", d.quote(arm.column), s.bind(from))
		return scan(ctx, q, s, func(_ []column, values []any) error {
			key, err := NewKey(t.kinds, values)
			if err != nil {
				return err
			}
			return each(key)
		})
	})
}

// moment returns a time in the form in which a column keeps its times; some is
// false where it keeps none. A column may hold numbers, which count from 1970 in
// a unit that their size tells, or text, of which the day alone sorts the same
// in all its forms: a day too early does no harm.
func (t *tables) moment(ctx context.Context, q queryer, arm timedArm, since time.Time) (from any, some bool, err error) {
	d := arm.database.Dialect
	s := &statement{dialect: d}
	name := d.quote(arm.column)
	s.add("SELECT %s FROM %s WHERE %s IS NOT NULL LIMIT 1", name, d.table(arm.table), name)
	err = scan(ctx, q, s, func(types []column, values []any) error {
		some = true
		kind, text := types[0].kind(), textAt(values, 0)
		switch x := values[0].(type) {
		case time.Time:
			if d != SQLite {
				from = since.UTC()
				return nil
			}
			text = x.String()
		case int64:
			kind, text = KindNumber, strconv.FormatInt(x, 10)
		}
		_, notDigits := strconv.ParseInt(text, 10, 64)
		switch {
		case kind == KindNumber:
			from = epoch(text, since)
		case kind != KindTime && notDigits == nil:
			from = strconv.FormatInt(epoch(text, since), 10)
		case d == SQLite || kind != KindTime:
			from = since.UTC().AddDate(0, 0, -1).Format(time.DateOnly)
		default:
			from = since.UTC()
		}
		return nil
	})
	return from, some, err
}

// epoch returns a time in the unit of a number, as parseTime reads it.
func epoch(like string, at time.Time) int64 {
	whole, _, _ := strings.Cut(like, ".")
	switch digits := len(whole); {
	case digits <= 11:
		return at.Unix()
	case digits <= 14:
		return at.UnixMilli()
	case digits <= 17:
		return at.UnixMicro()
	}
	return at.UnixNano()
}
