package store

import (
	"math"
	"slices"
	"sync/atomic"
)

// A QueueWalk helps a store to answer walks by reading the queue as it lies, by
// id, instead of searching for each lane: for a relay that has most of the lanes
// that costs a fraction, and what it then loads and settles lies together. What
// is not wanted, because it is parked or another relay's, is read in vain; and the
// rows of one key that has very many keep those behind them waiting. Where most of
// what was found is so, the lanes are searched for a while. The zero value is ready
// for use, by several goroutines at once.
type QueueWalk struct{ byLanes atomic.Int64 }

const (
	manyLanes = Lanes / 2
	manyRows  = 100 // of the limit; for fewer the lanes are as good
	// someWalks search the lanes one by one after the queue had mostly what was not
	// wanted, or one lane's.
	someWalks = 8
	usualRefs = 4096 // room is made for at once
)

// Walk answers a request. Queue calls add for the queue's rows with an id greater
// than after, whatever their lanes and states, in the order of their ids, at most
// limit of them; hot says that a row is PENDING and not parked. Lanes walks as
// [WalkRequest] says.
func (w *QueueWalk) Walk(
	request WalkRequest,
	queue func(after int64, limit int, add func(ref Ref, hot bool)) error,
	lanes func() (WalkResult, error),
) (WalkResult, error) {
	if len(request.Lanes) < manyLanes || request.Limit < manyRows || w.byLanes.Add(-1) >= 0 {
		return lanes()
	}
	var after [Lanes]int64
	for i := range after {
		after[i] = math.MaxInt64
	}
	first := int64(math.MaxInt64)
	for _, cursor := range request.Lanes {
		after[cursor.Lane], first = cursor.After, min(first, cursor.After)
	}
	result, n, most := WalkResult{Through: math.MaxInt64}, 0, 0
	var found [Lanes]int
	err := queue(first, request.Limit, func(ref Ref, hot bool) {
		if n++; n == request.Limit {
			result.Through = ref.ID
		}
		if hot && ref.Lane >= 0 && ref.Lane < Lanes && ref.ID > after[ref.Lane] && !slices.Contains(request.ExcludeTopics, ref.TopicHash) {
			if result.Refs == nil {
				result.Refs = make([]Ref, 0, min(request.Limit, usualRefs))
			}
			result.Refs = append(result.Refs, ref)
			found[ref.Lane]++
			most = max(most, found[ref.Lane])
		}
	})
	if err != nil {
		return WalkResult{}, err
	}
	if n < manyRows || 2*len(result.Refs) >= n && 2*most <= n {
		return result, nil
	}
	w.byLanes.Store(someWalks)
	return lanes()
}
