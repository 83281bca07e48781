package reconcile

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/internal/fault"
	"github.com/waybillhq/waybill/store"
)

// Rebuilt is what a rebuild did.
type Rebuilt struct {
	Rows      int       `json:"rows"`      // of the read model that follow from the log
	Written   int       `json:"written"`   // of those: inserted or changed
	Removed   int       `json:"removed"`   // whose last event is a delete
	Unchanged int       `json:"unchanged"` // were right already
	Refused   []Refusal `json:"refused"`   // left as they are
	Swapped   bool      `json:"swapped,omitempty"`
	DryRun    bool      `json:"dry_run,omitempty"`
}

// Refusal is a key that a rebuild left alone, and why.
type Refusal struct {
	Key    string `json:"key"`
	Reason string `json:"reason"`
}

// RebuildConfig says what a rebuild brings about, and how. Nil means all keys,
// in place.
type RebuildConfig struct {
	Keys     [][]string       // each with the texts of its parts
	Findings []*FindingRecord // the keys of these, too. Without any of both: all keys
	DryRun   bool             // count only
	// Archive also reads the outbox's archive, for what a cleanup took out of the
	// outbox. It has no index by key, so this costs one pass over it for each range.
	Archive bool
	// Shadow builds a whole table beside the read model, and swaps the two at once.
	// See [Engine.Rebuild].
	Shadow bool
	// Fold is the consumer's own handler, and makes a row of all events of its key
	// in order of version; an inbox.Handler over database/sql will do, and of one
	// over pgx what OverSQL of store/postgres makes of it. It is required for events
	// that hold changes.
	Fold func(ctx context.Context, tx store.SQLTx, event waybill.Event) error
}

// Rebuild brings the read model to what the log makes of it. A rebuild that was
// interrupted, at whatever moment, may simply be run again.
//
// Without a Fold it writes the latest sent event of each key: the compared
// columns, the version, and where the check names them the event's id and the
// time of writing. Each row is written on the condition that its version is the
// one that was read, so a live consumer may go on: what it writes meanwhile
// wins.
//
// With a Fold each row is locked, and made anew by the handler from the events
// that the consumer has applied: those that its inbox says, if the check names
// it, else all that were sent. Whatever else the handler writes is undone, and
// the row is changed in place, so a consumer that waits for it goes on from
// there. Columns that the database computes are not supported.
//
// With Shadow all this happens in a copy of the table, which takes the table's
// place in one step at the end: readers see all of it or nothing. Meanwhile the
// consumer goes on with the table; what it has changed is brought over before the
// swap, the last of it while writers wait, on MySQL and MariaDB readers too.
//
// A key whose log is incomplete, because the read model knows more than the log
// or a version is missing of those to be folded, is refused and left alone.
func (e *Engine) Rebuild(ctx context.Context, config *RebuildConfig) (*Rebuilt, error) {
	if config == nil {
		config = &RebuildConfig{}
	}
	if err := e.rebuildable(config); err != nil {
		return nil, &waybill.Error{Op: "rebuild", Key: e.check.Name, Err: err}
	}
	r, err := e.newRun(ctx)
	if err != nil {
		return nil, err
	}
	b := &rebuild{run: r, config: config, table: e.check.Read, on: e.bases.read.DB, out: &Rebuilt{Refused: []Refusal{}, DryRun: config.DryRun}}
	if config.Archive {
		b.archive = e.bases.archive()
	}
	keys, err := b.keys()
	if err != nil {
		return b.out, err
	}
	for _, key := range keys {
		if err := b.one(ctx, key); err != nil {
			return b.out, err
		}
	}
	switch {
	case len(keys) > 0:
		return b.out, nil
	case config.Shadow && !config.DryRun:
		return b.out, b.shadow(ctx)
	}
	return b.out, b.all(ctx, b.bring)
}

func (e *Engine) rebuildable(config *RebuildConfig) error {
	c := e.check
	switch {
	case c.Log == nil || c.Read == nil:
		return errors.New("the check needs a log and a read side")
	case e.bases == nil:
		return errors.New("the read side is no database")
	case config.Archive && c.Log.Outbox == nil:
		return errors.New("only the outbox has an archive that is known")
	case config.Shadow && (len(config.Keys) > 0 || len(config.Findings) > 0):
		return errors.New("a swap brings about the whole table, not some keys")
	case config.Shadow && config.Fold != nil:
		return errors.New("a handler writes to the read model itself, so a fold cannot go beside it: rebuild in place")
	case config.Fold != nil && c.Consumer != nil && c.Consumer.Database != c.Read.Database:
		return errors.New("the consumer's inbox must be in the read model's database, to be read with the row")
	case config.Fold != nil:
		return nil
	case c.Events != "state":
		return errors.New("events that hold changes must go through the consumer's handler")
	case c.Read.Deleted != "":
		return errors.New("a read model that marks rows as deleted must go through the consumer's handler")
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
	config  *RebuildConfig
	out     *Rebuilt
	table   *Table   // that is written to
	on      executor // of the read side's database
	archive *tables  // nil: not asked for
}

// keys are those asked for; none means all.
func (b *rebuild) keys() (keys []Key, err error) {
	for _, texts := range b.config.Keys {
		key, err := ParseKey(b.check.kinds(), texts)
		if err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	for _, finding := range b.config.Findings {
		if finding.Check != b.check.Name {
			return nil, &waybill.Error{Op: "rebuild", Key: finding.ID, Err: fmt.Errorf("it is a finding of the check %s", finding.Check)}
		}
		key, err := keyFromStored(b.check.kinds(), finding.StoredKey)
		if err != nil {
			return nil, &waybill.Error{Op: "rebuild", Key: finding.ID, Err: err, Hint: "a finding of a whole range has no key"}
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// all hands over each key in order.
func (b *rebuild) all(ctx context.Context, each func(context.Context, *Facts) error) error {
	var from *Key
	for {
		to, err := b.boundary(ctx, from)
		if err != nil {
			return err
		}
		if err := b.ranged(ctx, Range{From: from, To: to}, each); err != nil {
			return err
		}
		if to == nil {
			return nil
		}
		from = to
	}
}

func (b *rebuild) ranged(ctx context.Context, whole Range, each func(context.Context, *Facts) error) error {
	found, err := b.facts(ctx, whole)
	if err != nil {
		return err
	}
	for i := range found {
		if err := each(ctx, &found[i]); err != nil {
			return err
		}
	}
	return nil
}

func (b *rebuild) one(ctx context.Context, key Key) error {
	return b.ranged(ctx, Range{only: &key}, b.bring)
}

// facts gathers what the arms have, and the archive where it is asked for.
func (b *rebuild) facts(ctx context.Context, whole Range) ([]Facts, error) {
	found, _, err := b.gather(ctx, whole)
	if err != nil || b.archive == nil {
		return found, err
	}
	archived, err := b.archive.events(ctx, whole) // after the log: what moves meanwhile is in both
	if err != nil {
		return nil, err
	}
	return withArchived(found, archived), nil
}

// bring writes one row, and looks again where somebody else was faster.
func (b *rebuild) bring(ctx context.Context, f *Facts) error {
	const tries = 5
	for range tries {
		try := b.try
		if b.config.Fold != nil {
			try = b.fold
		}
		done, err := try(ctx, f)
		if err != nil || done {
			return err
		}
		found, err := b.facts(ctx, Range{only: &f.Key})
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
	name := f.Key.String()
	if i := slices.IndexFunc(b.out.Refused, func(r Refusal) bool { return r.Key == name }); i >= 0 {
		b.out.Refused[i].Reason = reason // it was looked at again
		return
	}
	b.out.Refused = append(b.out.Refused, Refusal{name, reason})
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
	case slices.ContainsFunc(sent.Values, func(v Value) bool { return v.kind == kindUnread }):
		b.refuse(f, fmt.Sprintf("the payload of %s v%d is no JSON", sent.ID, sent.Version))
		return true, nil
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
	events, err := b.bases.eventRows(ctx, b.logReader(), Range{only: &f.Key})
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
	fault.Point("reconcile-rebuild-row")
	result, err := b.on.ExecContext(limited, s.text.String(), s.args...)
	if err != nil {
		if there, readErr := b.row(ctx, b.on, f.Key); readErr == nil && f.Read == nil && there != nil {
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
