package mybinlog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"

	"github.com/waybillhq/waybill/cdc"
)

func testStream(t *testing.T) *stream {
	t.Helper()
	from, err := parsePlace(mysql.MySQLFlavor, serverA+":1")
	if err != nil {
		t.Fatal(err)
	}
	s := newStream(from)
	s.shut = func(context.Context) {}
	return s
}

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func whole(number uint64, ids ...int64) piece {
	return piece{ids: ids, whole: true, id: gtid{source: serverA, number: number}, committed: epoch.Add(time.Duration(number) * time.Second)}
}

func part(ids ...int64) piece { return piece{ids: ids} }

func at(last int) cdc.Position { return cdc.Position(fmt.Sprintf("%s:1-%d", serverA, last)) }

// Transactions are told together, but none begins in the batch of another that
// has a position, and nothing is told together with a TRUNCATE before it.
func TestBatches(t *testing.T) {
	many := func(n int) []int64 { return slices.Repeat([]int64{7}, n) }
	type told struct {
		ids       int
		position  cdc.Position
		marks     []string
		truncates int
	}
	for _, test := range []struct {
		name   string
		pieces []piece
		want   []told
	}{
		{"together", []piece{whole(2, 1, 2), whole(3, 3), whole(4)}, []told{{3, at(4), nil, 0}}},
		{"a position alone", []piece{whole(2)}, []told{{0, at(2), nil, 0}}},
		{"in parts", []piece{part(many(cdc.MaxIDs)...), part(many(cdc.MaxIDs)...), whole(2, 1)}, []told{
			{cdc.MaxIDs, "", nil, 0}, {cdc.MaxIDs, "", nil, 0}, {1, at(2), nil, 0},
		}},
		{"a part after a whole one", []piece{whole(2, 1), part(1), whole(3, 2), whole(4, 3)}, []told{{1, at(2), nil, 0}, {3, at(4), nil, 0}}},
		{"full", []piece{whole(2, many(cdc.MaxIDs-1)...), whole(3, 1), whole(4, 2)}, []told{{cdc.MaxIDs, at(3), nil, 0}, {1, at(4), nil, 0}}},
		{"marks", []piece{
			whole(2, 1),
			{marks: []string{"a"}, whole: true, id: gtid{source: serverA, number: 3}},
			{marks: []string{"b"}, whole: true, id: gtid{source: serverA, number: 4}},
		}, []told{{1, at(4), []string{"a", "b"}, 0}}},
		{"truncated", []piece{
			whole(2, 1), {truncates: 1, whole: true, id: gtid{source: serverA, number: 3}}, whole(4), whole(5, 1),
		}, []told{{1, at(4), nil, 1}, {1, at(5), nil, 0}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := testStream(t)
			for _, p := range test.pieces {
				if err := s.put(p); err != nil {
					t.Fatal(err)
				}
			}
			s.fail(io.EOF)
			var got []told
			for {
				batch, err := s.Next(t.Context())
				if errors.Is(err, io.EOF) {
					break
				}
				got = append(got, told{len(batch.IDs), batch.Position, batch.Marks, batch.Truncates})
			}
			if fmt.Sprint(got) != fmt.Sprint(test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

// The position stays before a branch that is prepared, for a while.
func TestHolds(t *testing.T) {
	s := testStream(t)
	first, second := whole(3), whole(5)
	first.prepared, second.prepared = "first", "second"
	resolve := whole(7)
	resolve.resolved = "first"
	late := whole(uint64(holdLimit/time.Second) + 6)
	for _, step := range []struct {
		put  piece
		want cdc.Position
	}{
		{whole(2), at(2)},
		{first, at(2)},
		{whole(4), at(2)},
		{second, at(2)},
		{whole(6), at(2)},
		{resolve, at(4)},
		{whole(8), at(4)},
		{late, cdc.Position(fmt.Sprintf("%s:1-8:%d", serverA, late.id.number))},
	} {
		if err := s.put(step.put); err != nil {
			t.Fatal(err)
		}
		if _, position, _ := s.look(); position != step.want {
			t.Errorf("after transaction %d: got %s, want %s", step.put.id.number, position, step.want)
		}
		s.queue = nil
	}
}

// A reader that does not read holds the decoder back, and closing frees both.
func TestBackPressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := testStream(t)
		put := 0
		ended := make(chan error, 1)
		go func() {
			for {
				if err := s.put(part(slices.Repeat([]int64{1}, cdc.MaxIDs)...)); err != nil {
					ended <- err
					return
				}
				put++
			}
		}()
		synctest.Wait()
		if put != queueLength {
			t.Errorf("got %d batches ahead, want %d", put, queueLength)
		}
		if _, err := s.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if put != queueLength+1 {
			t.Errorf("got %d batches after one was read, want %d", put, queueLength+1)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; !errors.Is(err, errClosed) {
			t.Errorf("got %v, want %v", err, errClosed)
		}
		if _, err := s.Next(t.Context()); !errors.Is(err, errClosed) {
			t.Errorf("next: got %v, want %v", err, errClosed)
		}
	})
}

// A position alone is told after a while, so that a busy server does not wake the
// reader for each transaction of others.
func TestQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := testStream(t)
		begin := time.Now()
		for n := range 3 {
			if err := s.put(whole(uint64(2 + n))); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), quiet/2)
		defer cancel()
		if _, err := s.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want it to wait", err)
		}
		batch, err := s.Next(t.Context())
		if waited := time.Since(begin); err != nil || batch.Position != at(4) || waited != quiet {
			t.Errorf("got %+v, %v after %v, want %s after %v", batch, err, waited, at(4), quiet)
		}
		go func() { _ = s.put(whole(5, 1)) }()
		if batch, err := s.Next(t.Context()); err != nil || len(batch.IDs) != 1 || time.Since(begin) != quiet {
			t.Errorf("got %+v, %v after %v, want the id at once", batch, err, time.Since(begin))
		}
	})
}
