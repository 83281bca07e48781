package cdctest

import (
	"context"
	"testing"
	"time"

	"github.com/waybillhq/waybill/cdc"
)

// follow: ids come in the order of commits, whatever the order of inserts.
func (s *suite) follow(t *testing.T) {
	d := s.Open(t)
	source := d.Source(t)
	r := open(t, source, "")
	r.toMark(t, source, "begin")

	early, late := d.Begin(t), d.Begin(t)
	first := early.Insert(t, 2)
	second := late.Insert(t, 1)
	late.Commit(t)
	d.Unrelated(t)
	third := d.commit(t, 3)
	early.Commit(t)
	r.toMark(t, source, "end")
	want := append(append(second, third...), first...)
	wantIDs(t, r.ids, want)
	if r.after == "" {
		t.Error("no batch had a position")
	}
	if r.told.Undecodable > 0 || r.told.Truncates > 0 {
		t.Errorf("got %d undecodable and %d truncates, want none", r.told.Undecodable, r.told.Truncates)
	}
}

// rollbacks: what was undone is not told.
func (s *suite) rollbacks(t *testing.T) {
	d := s.Open(t)
	source := d.Source(t)
	r := open(t, source, "")
	r.toMark(t, source, "begin")
	gone := d.Begin(t)
	gone.Insert(t, 3)
	gone.Rollback(t)
	tx := d.Begin(t)
	want := tx.Insert(t, 1)
	tx.Savepoint(t)
	tx.Insert(t, 2)
	tx.RollbackTo(t)
	want = append(want, tx.Insert(t, 1)...)
	tx.Commit(t)
	r.toMark(t, source, "end")
	wantIDs(t, r.ids, want)
}

// idle: a position moves on while nothing is committed to the outbox, and a
// context that ends takes nothing with it.
func (s *suite) idle(t *testing.T) {
	d := s.Open(t)
	source := d.Source(t)
	r := open(t, source, "")
	r.toMark(t, source, "begin")
	before := r.after
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.stream.Next(ctx); err == nil {
		t.Log("a batch came at once")
	}
	d.Unrelated(t)
	mark(t, source, "beat")
	for r.after == before || len(r.told.Marks) < 2 {
		r.next(t)
	}
	want := d.commit(t, 1)
	r.toMark(t, source, "end")
	wantIDs(t, r.ids, want)
}

// huge: one transaction with very many rows is told in parts, each bounded, and
// none of the parts before the last has a position within it.
func (s *suite) huge(t *testing.T) {
	d := s.Open(t)
	source := d.Source(t)
	r := open(t, source, "")
	r.toMark(t, source, "begin")
	from := r.after
	want := d.commit(t, s.Huge)
	mark(t, source, "end")
	cut := cdc.Position("")
	for len(r.ids) < len(want) {
		if batch := r.next(t); len(r.ids) < len(want) && len(batch.IDs) > 0 && batch.Position != "" {
			cut = batch.Position
		}
	}
	r.until(t, "end")
	wantIDs(t, r.ids, want)
	if cut != "" {
		t.Errorf("position %q was told inside of the transaction", cut)
	}
	closeStream(t, r.stream)
	// Nothing was acknowledged: all of it is told again.
	r = open(t, source, from)
	r.until(t, "end")
	wantIDs(t, r.ids, want)
}

// truncate: it is counted and what follows is told.
func (s *suite) truncate(t *testing.T) {
	d := s.Open(t)
	source := d.Source(t)
	r := open(t, source, "")
	r.toMark(t, source, "begin")
	want := d.commit(t, 2)
	d.Truncate(t)
	want = append(want, d.commit(t, 2)...)
	r.toMark(t, source, "end")
	wantIDs(t, r.ids, want)
	if r.told.Truncates != 1 {
		t.Errorf("got %d truncates, want 1", r.told.Truncates)
	}
}

// changes: ids are found whatever is done to the tables before, between and
// while they are read.
func (s *suite) changes(t *testing.T) {
	d := s.Open(t)
	if len(d.Changes) == 0 {
		t.Skip("the harness has no schema changes")
	}
	source := d.Source(t)
	r := open(t, source, "")
	r.toMark(t, source, "begin")
	want := d.commit(t, 2)
	for _, change := range d.Changes {
		change.Make(t)
		want = append(want, d.commit(t, 2)...)
	}
	from := r.after
	r.toMark(t, source, "end")
	wantIDs(t, r.ids, want)
	closeStream(t, r.stream)
	// A reader that was away meanwhile knows the last shape of the tables only.
	r = open(t, d.Source(t), from)
	r.until(t, "end")
	wantIDs(t, r.ids, want)
	for i, change := range d.Changes {
		t.Run(change.Name, func(t *testing.T) {
			at := 2 + 2*i
			wantIDs(t, r.ids[at:at+2], want[at:at+2])
		})
	}
	if r.told.Undecodable > 0 {
		t.Errorf("got %d undecodable, want none", r.told.Undecodable)
	}
}

// waitFor polls until a condition holds.
func waitFor(t testing.TB, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-ctx.Done():
			t.Fatalf("waited %v for %s", patience, what)
		case <-tick.C:
		}
	}
}
