package reconcile

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/waybillhq/waybill"
)

// Rebuilt is what a rebuild did.
type Rebuilt struct {
	Rows      int       `json:"rows"`      // of the read model that follow from the log
	Written   int       `json:"written"`   // of those: inserted or changed
	Removed   int       `json:"removed"`   // whose last event is a delete
	Unchanged int       `json:"unchanged"` // were right already
	Refused   []Refusal `json:"refused"`   // left as they are
	DryRun    bool      `json:"dry_run,omitempty"`
}

// Refusal is a key that a rebuild left alone, and why.
type Refusal struct {
	Key    string `json:"key"`
	Reason string `json:"reason"`
}

// RebuildConfig narrows a rebuild down. Nil means all keys.
type RebuildConfig struct {
	Keys   [][]string // each with the texts of its parts; empty: all
	DryRun bool       // count only
}

// Rebuild brings the read model to the latest sent event of each key: the
// compared columns, the version, and where the check names them the event's id
// and the time of writing. Events must hold states.
//
// Each row is written on the condition that its version is the one that was
// read, so a live consumer may go on: what it writes meanwhile wins. A key
// whose log is incomplete, because the read model knows more than the log, is
// refused and left alone. A rebuild that was interrupted may simply be run
// again.
func (e *Engine) Rebuild(ctx context.Context, config *RebuildConfig) (*Rebuilt, error) {
	if config == nil {
		config = &RebuildConfig{}
	}
	if err := e.rebuildable(); err != nil {
		return nil, &waybill.Error{Op: "rebuild", Key: e.check.Name, Err: err}
	}
	r, err := e.newRun(ctx)
	if err != nil {
		return nil, err
	}
	b := &rebuild{run: r, out: &Rebuilt{Refused: []Refusal{}, DryRun: config.DryRun}}
	for _, texts := range config.Keys {
		key, err := ParseKey(e.check.kinds(), texts)
		if err == nil {
			err = b.one(ctx, key)
		}
		if err != nil {
			return b.out, err
		}
	}
	if len(config.Keys) > 0 {
		return b.out, nil
	}
	return b.out, b.all(ctx)
}

func (e *Engine) rebuildable() error {
	c := e.check
	switch {
	case c.Log == nil || c.Read == nil:
		return errors.New("the check needs a log and a read side")
	case c.Events != "state":
		return errors.New("events that hold changes must go through the consumer's handler")
	case c.Read.Deleted != "":
		return errors.New("a read model that marks rows as deleted cannot be rebuilt yet")
	case e.bases == nil:
		return errors.New("the read side is no database")
	}
	for i := range c.Compare {
		column := &c.Compare[i]
		if column.in(column.Read) != "" && column.in(column.Log) == "" {
			return fmt.Errorf("the log lacks the column %s", column.Name)
		}
	}
	return nil
}

type rebuild struct {
	*run
	out *Rebuilt
}

func (b *rebuild) all(ctx context.Context) error {
	var from *Key
	for {
		to, err := b.boundary(ctx, from)
		if err != nil {
			return err
		}
		found, _, err := b.gather(ctx, Range{From: from, To: to})
		if err != nil {
			return err
		}
		for i := range found {
			if err := b.bring(ctx, &found[i]); err != nil {
				return err
			}
		}
		if to == nil {
			return nil
		}
		from = to
	}
}

func (b *rebuild) one(ctx context.Context, key Key) error {
	found, _, err := b.gather(ctx, Range{only: &key})
	if err != nil {
		return err
	}
	for i := range found {
		if err := b.bring(ctx, &found[i]); err != nil {
			return err
		}
	}
	return nil
}

// bring writes one row, and looks again where somebody else was faster.
func (b *rebuild) bring(ctx context.Context, f *Facts) error {
	const tries = 5
	for range tries {
		done, err := b.try(ctx, f)
		if err != nil || done {
			return err
		}
		found, _, err := b.gather(ctx, Range{only: &f.Key})
		if err != nil {
			return err
		}
		*f = Facts{Key: f.Key}
		if len(found) > 0 {
			*f = found[0]
		}
	}
	b.refuse(f, "it changes faster than it can be read; rebuild it again by key")
	return nil
}

func (b *rebuild) refuse(f *Facts, reason string) {
	b.out.Refused = append(b.out.Refused, Refusal{f.Key.String(), reason})
}

// try reports whether the key is done; it is not when its row was changed
// since it was read.
func (b *rebuild) try(ctx context.Context, f *Facts) (bool, error) {
	log := f.again()
	sent, top := last(log, isSent), last(log, every)
	switch {
	case f.Read == nil && (sent == nil || sent.Delete || deletedAfter(log, sent.Version)):
		return true, nil
	case f.Read != nil && top == nil:
		b.refuse(f, "the log has no event of it")
		return true, nil
	case f.Read != nil && f.Read.Version > top.Version:
		b.refuse(f, fmt.Sprintf("the log ends at v%d, the read model is at v%d", top.Version, f.Read.Version))
		return true, nil
	case f.Read != nil && (sent == nil || f.Read.Version > sent.Version):
		b.out.Rows++ // it came from an event that is about to be marked as sent
		b.out.Unchanged++
		return true, nil
	case sent.Delete:
		return b.write(ctx, f, &b.out.Removed, func() *statement { return b.remove(f) })
	case f.Read == nil:
		return b.revive(ctx, f, sent)
	case b.right(f, sent):
		b.out.Rows++
		b.out.Unchanged++
		return true, nil
	}
	done, err := b.write(ctx, f, &b.out.Written, func() *statement { return b.update(f, sent) })
	if done {
		b.out.Rows++
	}
	return done, err
}

// revive inserts a row. A row that is absent has no version to compare with, so
// a consumer may have applied the event and the delete after it between our
// reading and our writing. The log has that delete by then: it is looked at
// again, and the row taken back.
func (b *rebuild) revive(ctx context.Context, f *Facts, sent *Event) (bool, error) {
	done, err := b.write(ctx, f, &b.out.Written, func() *statement { return b.insert(f, sent) })
	if err != nil || !done {
		return done, err
	}
	b.out.Rows++
	if b.out.DryRun {
		return true, nil
	}
	events, err := b.arms.events(ctx, Range{only: &f.Key})
	if err != nil {
		return false, err
	}
	for _, item := range events {
		if deletedAfter(item.Item, sent.Version) {
			b.out.Rows--
			b.out.Written--
			taken := &Facts{Key: f.Key, Read: &Row{Version: sent.Version}}
			return b.write(ctx, taken, &b.out.Removed, func() *statement { return b.remove(taken) })
		}
	}
	return true, nil
}

func deletedAfter(events []Event, version int64) bool {
	return last(events, func(e *Event) bool { return e.Delete && e.Version > version }) != nil
}

// right reports whether the row is what the event makes of it.
func (b *rebuild) right(f *Facts, sent *Event) bool {
	if f.Read.Version != sent.Version || b.check.Read.EventID != "" && b.check.Log.EventID != "" && f.Read.EventID != sent.ID {
		return false
	}
	return judgeReadContent(f, &b.rules, sent) == nil
}

// write runs a statement that must change one row, and counts it.
func (b *rebuild) write(ctx context.Context, f *Facts, count *int, build func() *statement) (bool, error) {
	if b.out.DryRun {
		*count++
		return true, nil
	}
	s := build()
	limited, cancel := b.bases.limit(ctx)
	defer cancel()
	result, err := b.bases.read.DB.ExecContext(limited, s.text.String(), s.args...)
	if err != nil {
		if there, readErr := b.arms.readModel(ctx, Range{only: &f.Key}); readErr == nil && f.Read == nil && len(there) > 0 {
			return false, nil // inserted by the consumer meanwhile
		}
		return false, &waybill.Error{Op: "rebuild", Key: f.Key.String(), Err: err}
	}
	changed, err := result.RowsAffected()
	if err != nil {
		return false, &waybill.Error{Op: "rebuild", Key: f.Key.String(), Err: err}
	}
	if changed == 0 {
		return false, nil
	}
	*count++
	return true, nil
}

// assigned are the columns that a rebuild writes, with their values.
func (b *rebuild) assigned(sent *Event) (names []string, values []any) {
	read := b.check.Read
	add := func(name string, value any) {
		if name != "" && !slices.Contains(names, name) {
			names, values = append(names, name), append(values, value)
		}
	}
	add(read.Version, sent.Version)
	if b.check.Log.EventID != "" {
		add(read.EventID, sent.ID)
	}
	add(read.UpdatedAt, b.bases.read.Dialect.timeParam(b.clock.Now()))
	for i := range b.check.Compare {
		add(b.check.Compare[i].in(b.check.Compare[i].Read), b.bases.read.Dialect.valueParam(sent.Values[i]))
	}
	return names, values
}

func (b *rebuild) insert(f *Facts, sent *Event) *statement {
	d, read := b.bases.read.Dialect, b.check.Read
	s := &statement{dialect: d}
	k := d.keys(read, b.bases.kinds)
	columns, places := slices.Clone(k.columns), []string(nil)
	for i := range k.columns {
		places = append(places, s.bind(d.storedParam(f.Key.parts[i], k.kinds[i], k.stored[i])))
	}
	names, values := b.assigned(sent)
	for i, name := range names {
		columns, places = append(columns, d.quote(name)), append(places, s.bind(values[i]))
	}
	for _, name := range slices.Sorted(maps.Keys(read.Where)) {
		columns, places = append(columns, d.quote(name)), append(places, s.bind(read.Where[name]))
	}
	return s.add("INSERT INTO %s (%s) VALUES (%s)", d.table(read), strings.Join(columns, ", "), strings.Join(places, ", "))
}

func (b *rebuild) update(f *Facts, sent *Event) *statement {
	d, read := b.bases.read.Dialect, b.check.Read
	s := &statement{dialect: d}
	names, values := b.assigned(sent)
	for i, name := range names {
		names[i] = d.quote(name) + " = " + s.bind(values[i])
	}
	s.add("UPDATE %s SET %s", d.table(read), strings.Join(names, ", "))
	return b.unchanged(s, f)
}

func (b *rebuild) remove(f *Facts) *statement {
	d, read := b.bases.read.Dialect, b.check.Read
	return b.unchanged((&statement{dialect: d}).add("DELETE FROM %s", d.table(read)), f)
}

// unchanged limits a statement to the row as it was read.
func (b *rebuild) unchanged(s *statement, f *Facts) *statement {
	d, read := b.bases.read.Dialect, b.check.Read
	d.keys(read, b.bases.kinds).where(s, Range{only: &f.Key})
	filter(s, read)
	s.add(" AND COALESCE(%s, 0) = %s", d.quote(read.Version), s.bind(f.Read.Version))
	return s
}
