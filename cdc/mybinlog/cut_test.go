package mybinlog_test

import (
	"bytes"
	"context"
	"slices"
	"testing"

	"github.com/waybillhq/waybill/cdc"
)

// A stream that is cut off after any event, also inside of a transaction, goes on
// from the position that it told last with nothing left out.
func TestCutAnywhere(t *testing.T) {
	onEach(t, func(t *testing.T, s *server) {
		d := s.database(t)
		source := d.source(t)
		f := follow(t, source, "")
		f.toMark(t)
		begin := f.after
		x := d.begin(t)
		var want []int64
		for range 3 {
			want = append(want, x.Insert(t, 1)...)
		}
		x.Commit(t)
		run(t, d.db, "INSERT INTO orders (note) VALUES ('between')")
		want = append(want, d.commit(t, 2)...)
		branch := d.prepared(t, "cut", 1)
		want = append(want, d.commit(t, 1)...)
		run(t, d.db, "XA COMMIT 'cut'", "ALTER TABLE outbox_event ADD COLUMN early int NULL FIRST")
		want = append(want, branch...)
		want = append(want, d.commit(t, 1)...)
		f.toMark(t)
		f.want(t, want, 0)
		last := f.told.Marks[len(f.told.Marks)-1]
		f.close(t)

		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		events, err := source.Record(ctx, begin, func(events [][]byte) bool { return bytes.Contains(events[len(events)-1], []byte(last)) })
		if err != nil {
			t.Fatal(err)
		}
		// What a stream tells from a position on is always the same.
		rest := make(map[cdc.Position][]int64)
		for n := range events {
			batches, err := source.Replay(ctx, begin, events[:n+1])
			if err != nil {
				t.Fatalf("after %d events: %v", n+1, err)
			}
			var told []int64
			after := begin
			for _, batch := range batches {
				told = append(told, batch.IDs...)
				if batch.Position != "" {
					after = batch.Position
				}
			}
			if rest[after] == nil {
				f := follow(t, source, after)
				f.toMark(t)
				f.close(t)
				rest[after] = append([]int64{}, f.told.IDs...)
			}
			if got := firsts(append(told, rest[after]...)); !slices.Equal(got, want) {
				t.Errorf("cut after %d of %d events, at %s: got %v, want %v", n+1, len(events), after, got, want)
			}
		}
		if len(rest) < 5 || len(events) < 20 {
			t.Errorf("got %d positions in %d events, too few to have been in all places", len(rest), len(events))
		}
	})
}

// firsts leaves the first occurrence of each.
func firsts(ids []int64) []int64 {
	var kept []int64
	for _, id := range ids {
		if !slices.Contains(kept, id) {
			kept = append(kept, id)
		}
	}
	return kept
}
