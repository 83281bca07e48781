package trial

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/waybillhq/waybill/reconcile"
)

// fault is a way to break something, or something that only looks like it.
type fault struct {
	name string
	// want are the verdicts that a check must reach, and dense those of one with
	// density: every_version; nil for the same.
	want, dense []reconcile.Class
	// settled says that the read model must show the purchase's version first:
	// else what is on its way would mend it.
	settled bool
	fresh   bool // of a purchase that nobody has made
	plant   func(ctx context.Context, w *town, p *purchase) error
}

// control reports whether nothing is broken.
func (f *fault) control() bool { return len(f.want) == 0 && len(f.dense) == 0 }

var (
	missing = []reconcile.Class{reconcile.MissingEvent}
	orphan  = []reconcile.Class{reconcile.OrphanEvent}
	edited  = []reconcile.Class{reconcile.MismatchWrite}
	wrong   = []reconcile.Class{reconcile.MismatchRead}
)

var faults = []fault{
	{name: "latest event deleted", want: missing, plant: func(ctx context.Context, w *town, p *purchase) error {
		return w.within(ctx, func(tx *sql.Tx) error {
			for _, table := range []string{"outbox_pending", "outbox_receipt", "outbox_event"} {
				if _, err := tx.ExecContext(ctx, "DELETE FROM "+table+" WHERE id = (SELECT id FROM outbox_event WHERE event_id = $1)", eventID(p, p.version)); err != nil {
					return err
				}
			}
			return nil
		})
	}},
	{name: "latest version never written", want: missing, plant: func(ctx context.Context, w *town, p *purchase) error {
		p.version++
		return w.write1(ctx, "UPDATE purchase SET version = version + 1, status = 'LOST', updated_at = clock_timestamp() WHERE tenant = $1 AND id = $2", p)
	}},
	{name: "intermediate version never written", dense: missing, plant: func(ctx context.Context, w *town, p *purchase) error {
		return w.within(ctx, func(tx *sql.Tx) error {
			p.version++ // of which no event tells
			return w.advance(ctx, tx, p, changed)
		})
	}},
	{name: "dead event ignored", want: missing, plant: func(ctx context.Context, w *town, p *purchase) error {
		return w.unsent(ctx, p, "UPDATE outbox_pending SET status = 'DEAD', last_error = 'planted'")
	}},
	{name: "event never queued", want: missing, plant: func(ctx context.Context, w *town, p *purchase) error {
		return w.unsent(ctx, p, "DELETE FROM outbox_pending")
	}},
	{name: "business column edited", want: edited, plant: func(ctx context.Context, w *town, p *purchase) error {
		return w.write1(ctx, "UPDATE purchase SET total = total + 0.01, updated_at = clock_timestamp() WHERE tenant = $1 AND id = $2", p)
	}},
	{name: "edited with a time in the past", want: edited, plant: func(ctx context.Context, w *town, p *purchase) error {
		return w.write1(ctx, "UPDATE purchase SET status = 'EDITED', updated_at = '2001-01-01' WHERE tenant = $1 AND id = $2", p)
	}},
	{name: "payload edited", want: slices.Concat(edited, wrong), settled: true, plant: func(ctx context.Context, w *town, p *purchase) error {
		_, err := w.write.ExecContext(ctx, `UPDATE outbox_event SET payload = convert_to('{"status":"FAKED","total":0.01}', 'UTF8') WHERE event_id = $1`, eventID(p, p.version))
		return err
	}},
	{name: "event without a row", want: orphan, fresh: true, plant: func(ctx context.Context, w *town, p *purchase) error {
		p.version = 1
		e, _, _ := w.event(p, changed)
		return w.within(ctx, func(tx *sql.Tx) error { return w.writer.Append(ctx, tx, e) })
	}},
	{name: "business row deleted", want: orphan, plant: func(ctx context.Context, w *town, p *purchase) error {
		return w.write1(ctx, "DELETE FROM purchase WHERE tenant = $1 AND id = $2", p)
	}},
	{name: "read row deleted", want: wrong, settled: true, plant: func(ctx context.Context, w *town, p *purchase) error {
		return w.read1(ctx, "DELETE FROM purchase_view WHERE tenant = ? AND id = ?", p)
	}},
	{name: "read row edited", want: wrong, settled: true, plant: func(ctx context.Context, w *town, p *purchase) error {
		return w.read1(ctx, "UPDATE purchase_view SET total = total + 0.01 WHERE tenant = ? AND id = ?", p)
	}},
	{name: "read row set back", want: wrong, settled: true, plant: func(ctx context.Context, w *town, p *purchase) error {
		return w.read1(ctx, "UPDATE purchase_view SET version = version - 1, status = 'OLD' WHERE tenant = ? AND id = ?", p)
	}},
	{name: "read row inserted", want: wrong, fresh: true, plant: func(ctx context.Context, w *town, p *purchase) error {
		return w.read1(ctx, "INSERT INTO purchase_view (tenant, id, status, total, version, updated_at) VALUES (?, ?, 'NEW', 1, 1, UTC_TIMESTAMP(6))", p)
	}},
	{name: "held as dead by the consumer", want: wrong, plant: func(ctx context.Context, w *town, p *purchase) error {
		return w.within(ctx, func(tx *sql.Tx) error {
			p.version++
			e, status, total := w.event(p, changed)
			e.Data = []byte(fmt.Sprintf(`{"status":%q,"total":%s,"poison":true}`, status, total))
			if _, err := tx.ExecContext(ctx, putSQL, p.tenant, p.id, status, total, p.version); err != nil {
				return err
			}
			return w.writer.Append(ctx, tx, e)
		})
	}},
	{name: "transaction that commits late", plant: func(ctx context.Context, w *town, p *purchase) error { return w.dawdle(ctx, p, 3*time.Second) }},
	{name: "same id in another tenant", fresh: true, plant: func(ctx context.Context, w *town, p *purchase) error {
		var number int
		if _, err := fmt.Sscanf(p.id, "f%d", &number); err != nil {
			return err
		}
		p.tenant, p.id = "other", w.purchases[number%len(w.purchases)].id
		return w.within(ctx, func(tx *sql.Tx) error { return w.advance(ctx, tx, p, changed) })
	}},
}

// write1 changes one row of the shop.
func (w *town) write1(ctx context.Context, statement string, p *purchase) error {
	return one(w.write.ExecContext(ctx, statement, p.tenant, p.id))
}

func (w *town) read1(ctx context.Context, statement string, p *purchase) error {
	return one(w.read.ExecContext(ctx, statement, p.tenant, p.id))
}

func one(result sql.Result, err error) error {
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); err != nil || n != 1 {
		return fmt.Errorf("%d rows changed, want 1: %w", n, err)
	}
	return nil
}

// unsent makes a version whose event will not be sent.
func (w *town) unsent(ctx context.Context, p *purchase, statement string) error {
	return w.within(ctx, func(tx *sql.Tx) error {
		if err := w.advance(ctx, tx, p, changed); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, statement+" WHERE id = (SELECT id FROM outbox_event WHERE event_id = $1)", eventID(p, p.version))
		return err
	})
}

// dawdle makes a version in a transaction that stays open for a while.
func (w *town) dawdle(ctx context.Context, p *purchase, long time.Duration) error {
	return w.within(ctx, func(tx *sql.Tx) error {
		if err := w.advance(ctx, tx, p, changed); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, "SELECT pg_sleep($1)", long.Seconds())
		return err
	})
}

// planter breaks things at random moments within a span of time.
type planter struct {
	*town

	fresh int
	mu    sync.Mutex
}

// plant breaks n things and does half as many harmless ones for each kind of
// those, within a span, and returns when all is done.
func (w *town) plant(ctx context.Context, n int, span time.Duration) {
	w.t.Helper()
	var broken, harmless []*fault
	for i := range faults {
		if faults[i].control() {
			harmless = append(harmless, &faults[i])
		} else {
			broken = append(broken, &faults[i])
		}
	}
	var work []*fault
	for i := range n {
		work = append(work, broken[i%len(broken)]) // each kind as often as others
	}
	for i := range n / 6 {
		work = append(work, harmless[i%len(harmless)])
	}
	p := &planter{town: w}
	var all sync.WaitGroup
	for _, f := range work {
		at := time.Duration(w.random.n(int(span)))
		all.Go(func() {
			moment := time.NewTimer(at)
			defer moment.Stop()
			select {
			case <-moment.C:
			case <-ctx.Done():
				return
			}
			if err := p.one(ctx, f); err != nil && ctx.Err() == nil {
				w.t.Errorf("planting %q: %v", f.name, err)
			}
		})
	}
	all.Wait()
}

// one plants a fault, and writes the truth down before: a run may see it at once.
func (w *planter) one(ctx context.Context, f *fault) error {
	victim, err := w.victim(f)
	if err != nil {
		return err
	}
	defer victim.mu.Unlock()
	if f.settled {
		if err := w.shown(ctx, victim); err != nil {
			return err
		}
	}
	if f.fresh && f.control() { // it gives itself another name
		err := f.plant(ctx, w.town, victim)
		w.truth.done(w.truth.note(f, victim.name()))
		return err
	}
	entry := w.truth.note(f, victim.name())
	err = f.plant(ctx, w.town, victim)
	w.truth.done(entry)
	return err
}

// victim returns a purchase that nobody changes any more, locked.
func (w *planter) victim(f *fault) (*purchase, error) {
	if f.fresh {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.fresh++
		p := &purchase{tenant: "t9", id: fmt.Sprintf("f%05d", w.fresh)}
		p.mu.Lock()
		return p, nil
	}
	for range 100_000 {
		p := w.purchases[w.random.n(len(w.purchases))]
		if !p.mu.TryLock() {
			continue
		}
		if p.there && !p.apart && p.version > 0 {
			p.apart = true
			return p, nil
		}
		p.mu.Unlock()
	}
	return nil, fmt.Errorf("all purchases are broken")
}

// shown waits until the read model shows the version of a purchase.
func (w *planter) shown(ctx context.Context, p *purchase) error {
	late := time.NewTimer(5 * time.Minute)
	defer late.Stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		var version int64
		err := w.read.QueryRowContext(ctx, "SELECT version FROM purchase_view WHERE tenant = ? AND id = ?", p.tenant, p.id).Scan(&version)
		var settled int
		if err == nil && version == p.version {
			// The relay may have to note that it was sent.
			err = w.write.QueryRowContext(ctx, "SELECT COUNT(*) FROM outbox_receipt WHERE event_id = $1", eventID(p, p.version)).Scan(&settled)
		}
		if err == nil && settled == 1 {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-late.C:
			return fmt.Errorf("%s v%d is not shown: v%d, %w", p.name(), p.version, version, err)
		case <-tick.C:
		}
	}
}
