package cdctest

import (
	"fmt"
	"testing"

	"github.com/waybillhq/waybill/cdc"
)

// resume: from the position after each batch the stream tells exactly the rest,
// and from one that was never acknowledged all after the last that was.
func (s *suite) resume(t *testing.T) {
	d := s.Open(t)
	source := d.Source(t)
	r := open(t, source, "")
	r.toMark(t, source, "begin")
	begin := r.after
	var want []int64
	var cuts []cut
	for n := range 6 {
		want = append(want, d.commit(t, 1+n%3)...)
		r.toMark(t, source, fmt.Sprint("mark ", n))
		wantIDs(t, r.ids, want)
		cuts = append(cuts, cut{r.after, len(want)})
	}
	mark(t, source, "end")
	closeStream(t, r.stream)

	r = open(t, source, begin)
	r.until(t, "end")
	wantIDs(t, r.ids, want)
	closeStream(t, r.stream)
	for _, c := range cuts {
		// Acknowledged on the way: a source that keeps its own place moves on.
		r := open(t, d.Source(t), c.at)
		r.until(t, "end")
		wantIDs(t, r.ids, want[c.n:])
		r.stream.Ack(c.at)
		closeStream(t, r.stream)
	}
}

type cut struct {
	at cdc.Position
	n  int // ids before it
}

// breaks: a stream that is cut off at any batch goes on after the last position
// that its reader has noted, with nothing left out and the order kept.
func (s *suite) breaks(t *testing.T) {
	d := s.Open(t)
	if d.Break == nil {
		t.Skip("the harness cannot break connections")
	}
	source := d.Source(t)
	r := open(t, source, "")
	r.toMark(t, source, "begin")
	var want []int64
	for range 5 {
		want = append(want, d.commit(t, 2)...)
	}
	mark(t, source, "end")
	var got []int64
	for round := 0; ; round++ {
		r.ids = nil
		from := r.after
		r.next(t)
		got = append(got, r.ids...)
		if len(got) >= len(want) || round > 100 {
			break
		}
		if round%2 == 0 {
			r.stream.Ack(r.after)
		}
		d.Break(t)
		if r.after == from && from == "" {
			t.Fatal("no position yet")
		}
		after := r.after
		waitFor(t, "the broken stream to end", func() bool { return ended(t, r.stream) })
		closeStream(t, r.stream)
		var next cdc.Stream
		waitFor(t, "the log to be free", func() bool {
			var err error
			next, err = tryOpen(t, source, after)
			if err != nil && cdc.StateOf(err) != cdc.Waiting && cdc.StateOf(err) != cdc.Unreachable {
				t.Fatalf("open after a break: %v", err)
			}
			return err == nil
		})
		r = &reader{stream: next, after: after}
		t.Cleanup(func() { closeStream(t, next) })
	}
	wantIDs(t, got, want)
}

// ended reads what a broken stream still has; it is not counted.
func ended(t testing.TB, stream cdc.Stream) bool {
	_, err := stream.Next(t.Context())
	return err != nil
}

// holders: where one process may read, a second is told so, and succeeds once
// the first has closed.
func (s *suite) holders(t *testing.T) {
	d := s.Open(t)
	source, other := d.Source(t), d.Source(t)
	if source.Name() == "" || source.Name() != other.Name() {
		t.Errorf("got names %q and %q, want one", source.Name(), other.Name())
	}
	r := open(t, source, "")
	r.toMark(t, source, "begin")
	if d.Shared {
		second := open(t, other, "")
		second.toMark(t, other, "second")
		closeStream(t, second.stream)
		return
	}
	if _, err := tryOpen(t, other, ""); err == nil {
		t.Fatal("a second stream was opened")
	} else {
		wantState(t, err, cdc.Waiting)
	}
	if status, err := other.Status(t.Context()); err != nil || status.State != cdc.Streaming {
		t.Errorf("got status %+v, %v, want %s", status, err, cdc.Streaming)
	}
	wantState(t, source.Drop(t.Context()), cdc.Waiting)
	// The first goes on undisturbed, and what it acknowledges last is kept.
	want := d.commit(t, 1)
	r.toMark(t, source, "more")
	wantIDs(t, r.ids, want)
	at := r.ackAll(t)
	want = d.commit(t, 1)
	second := open(t, other, at)
	second.toMark(t, other, "second")
	wantIDs(t, second.ids, want)
	if _, err := r.stream.Next(t.Context()); err == nil {
		t.Error("a closed stream told a batch")
	}
	closeStream(t, r.stream)
}

// lost: a position that is gone is refused with its state, each time, until the
// stream begins anew.
func (s *suite) lost(t *testing.T) {
	d := s.Open(t)
	if d.Lose == nil {
		t.Skip("the harness cannot lose a position")
	}
	source := d.Source(t)
	r := open(t, source, "")
	d.commit(t, 1)
	r.toMark(t, source, "begin")
	at := r.ackAll(t)
	d.commit(t, 1)
	d.Lose(t)
	for range 2 {
		stream, err := tryOpen(t, source, at)
		if err == nil {
			closeStream(t, stream)
			t.Fatal("opened at a position that is lost")
		}
		wantState(t, err, d.LostState)
		if !cdc.StateOf(err).Lost() {
			t.Errorf("state %s is not one of a loss", cdc.StateOf(err))
		}
	}
	fresh := open(t, source, "")
	want := d.commit(t, 2)
	fresh.toMark(t, source, "fresh")
	if n := len(fresh.ids); n < 2 {
		t.Fatalf("got ids %v, want at least %v", fresh.ids, want)
	}
	wantIDs(t, fresh.ids[len(fresh.ids)-2:], want)
}

// drop: nothing is left that pins the log, and it can be begun anew.
func (s *suite) drop(t *testing.T) {
	d := s.Open(t)
	source := d.Source(t)
	r := open(t, source, "")
	r.toMark(t, source, "begin")
	r.ackAll(t)
	for range 2 {
		if err := source.Drop(t.Context()); err != nil {
			t.Fatalf("drop: %v", err)
		}
	}
	if status, err := source.Status(t.Context()); err != nil || status.RetainedBytes > 0 {
		t.Errorf("got status %+v, %v, want nothing retained", status, err)
	}
	r = open(t, source, "")
	want := d.commit(t, 1)
	r.toMark(t, source, "again")
	wantIDs(t, r.ids, want)
}
