package pgwal

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/waybillhq/waybill/cdc"
)

func TestBacklogJoinsWholeTransactionsOnly(t *testing.T) {
	b := newBacklog()
	b.put(cdc.Batch{IDs: []int64{1}, Position: "0/1", Marks: []string{"a"}, Truncates: 1})
	b.put(cdc.Batch{IDs: []int64{2}, Position: "0/2", Undecodable: 2})
	b.put(cdc.Batch{IDs: []int64{3}})
	b.put(cdc.Batch{IDs: []int64{4}})
	b.put(cdc.Batch{IDs: []int64{5}, Position: "0/5"})
	b.put(cdc.Batch{Position: "0/6", Marks: []string{"b"}})
	b.put(cdc.Batch{IDs: make([]int64, cdc.MaxIDs), Position: "0/7"})
	b.end(errClosed)
	want := []cdc.Batch{
		{IDs: []int64{1, 2}, Position: "0/2", Marks: []string{"a"}, Truncates: 1, Undecodable: 2},
		{IDs: []int64{3}},
		{IDs: []int64{4}},
		{IDs: []int64{5}, Position: "0/6", Marks: []string{"b"}},
		{IDs: make([]int64, cdc.MaxIDs), Position: "0/7"},
	}
	for i, want := range want {
		got, err := b.take(t.Context())
		if err != nil || !slices.Equal(got.IDs, want.IDs) || got.Position != want.Position || !slices.Equal(got.Marks, want.Marks) ||
			got.Truncates != want.Truncates || got.Undecodable != want.Undecodable {
			t.Errorf("batch %d: got %+v, %v, want %+v", i, got, err, want)
		}
	}
	for range 2 {
		if _, err := b.take(t.Context()); !errors.Is(err, errClosed) {
			t.Errorf("got %v, want the end", err)
		}
	}
}

func TestBacklogIsLeftWithTheContext(t *testing.T) {
	b := newBacklog()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.take(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	b.put(cdc.Batch{Position: "0/1"})
	if got, err := b.take(t.Context()); err != nil || got.Position != "0/1" {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestClosedBacklogTellsNothing(t *testing.T) {
	b := newBacklog()
	b.put(cdc.Batch{Position: "0/1"})
	b.close()
	b.put(cdc.Batch{Position: "0/2"}) // the reader had it in hand
	if got, err := b.take(t.Context()); !errors.Is(err, errClosed) {
		t.Errorf("got %+v, %v", got, err)
	}
}
