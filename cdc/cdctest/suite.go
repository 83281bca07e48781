package cdctest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/waybillhq/waybill/cdc"
)

// patience bounds whatever should happen soon. It is long, because it only
// matters when something is broken or the machine is busy.
const patience = 90 * time.Second

// Run proves a source.
func Run(t *testing.T, h Harness) {
	if h.Huge == 0 {
		h.Huge = 3 * cdc.MaxIDs
	}
	s := suite{h}
	t.Run("follow", s.follow)
	t.Run("rollbacks", s.rollbacks)
	t.Run("resume", s.resume)
	t.Run("breaks", s.breaks)
	t.Run("idle", s.idle)
	t.Run("huge", s.huge)
	t.Run("holders", s.holders)
	t.Run("lost", s.lost)
	t.Run("drop", s.drop)
	t.Run("truncate", s.truncate)
	t.Run("changes", s.changes)
}

type suite struct{ Harness }

// A reader follows one stream and keeps what it was told.
type reader struct {
	stream cdc.Stream
	ids    []int64
	told   cdc.Batch // everything but ids, added up
	after  cdc.Position
}

func open(t testing.TB, source cdc.Source, from cdc.Position) *reader {
	t.Helper()
	stream, err := tryOpen(t, source, from)
	if err != nil {
		t.Fatalf("open at %q: %v", from, err)
	}
	t.Cleanup(func() { closeStream(t, stream) })
	return &reader{stream: stream, after: from}
}

func tryOpen(t testing.TB, source cdc.Source, from cdc.Position) (cdc.Stream, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := source.Setup(ctx); err != nil {
		t.Fatalf("set up: %v", err)
	}
	return source.Open(ctx, from)
}

func closeStream(t testing.TB, stream cdc.Stream) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	defer cancel()
	if err := stream.Close(ctx); err != nil {
		t.Errorf("close: %v", err)
	}
}

// next reads one batch and checks what holds for each.
func (r *reader) next(t testing.TB) cdc.Batch {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	batch, err := r.stream.Next(ctx)
	if err != nil {
		t.Fatalf("next after %d ids: %v", len(r.ids), err)
	}
	if len(batch.IDs) > cdc.MaxIDs {
		t.Fatalf("got a batch of %d ids, at most %d are allowed", len(batch.IDs), cdc.MaxIDs)
	}
	r.ids = append(r.ids, batch.IDs...)
	r.told.Marks = append(r.told.Marks, batch.Marks...)
	r.told.Truncates += batch.Truncates
	r.told.Undecodable += batch.Undecodable
	if batch.Position != "" {
		r.after = batch.Position
	}
	return batch
}

// toMark writes a mark and reads until it is shown: all that committed before
// has then been shown as well.
func (r *reader) toMark(t testing.TB, source cdc.Source, text string) {
	t.Helper()
	mark(t, source, text)
	r.until(t, text)
}

// until reads on to a mark that was written.
func (r *reader) until(t testing.TB, text string) {
	t.Helper()
	for !slices.Contains(r.told.Marks, text) {
		r.next(t)
	}
}

func mark(t testing.TB, source cdc.Source, text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := source.Mark(ctx, text); err != nil {
		t.Fatalf("mark %s: %v", text, err)
	}
}

// ackAll acknowledges what was read and closes the stream, so that it is kept.
func (r *reader) ackAll(t testing.TB) cdc.Position {
	t.Helper()
	r.stream.Ack(r.after)
	closeStream(t, r.stream)
	return r.after
}

// commit inserts n events in a transaction of their own.
func (d *Database) commit(t testing.TB, n int) []int64 {
	t.Helper()
	tx := d.Begin(t)
	ids := tx.Insert(t, n)
	tx.Commit(t)
	return ids
}

func wantIDs(t testing.TB, got, want []int64) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("got ids %v, want %v", shorten(got), shorten(want))
	}
}

// shorten keeps a report readable.
func shorten(ids []int64) []int64 {
	if len(ids) > 50 {
		return append(slices.Clone(ids[:25]), ids[len(ids)-25:]...)
	}
	return ids
}

func wantState(t testing.TB, err error, want cdc.State) {
	t.Helper()
	var classified *cdc.Error
	if !errors.As(err, &classified) || classified.State != want {
		t.Fatalf("got %v, want an error of state %s", err, want)
	}
}
