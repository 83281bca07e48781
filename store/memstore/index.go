package memstore

import (
	"iter"
	"slices"
)

// index is a sorted set of ids. An id that is removed at the front, as most are,
// leaves the slice at once; another stays in it until half of it is such. Moving
// the rest each time would make a long queue quadratic.
type index struct {
	ids  []int64
	live map[int64]struct{}
}

func newIndex() *index { return &index{live: make(map[int64]struct{})} }

func (x *index) add(id int64) {
	if _, ok := x.live[id]; ok {
		return
	}
	x.live[id] = struct{}{}
	if n := len(x.ids); n == 0 || x.ids[n-1] < id {
		x.ids = append(x.ids, id)
		return
	}
	if i, found := slices.BinarySearch(x.ids, id); !found {
		x.ids = slices.Insert(x.ids, i, id)
	}
}

func (x *index) remove(id int64) {
	if _, ok := x.live[id]; !ok {
		return
	}
	delete(x.live, id)
	for len(x.ids) > 0 {
		if _, ok := x.live[x.ids[0]]; ok {
			break
		}
		x.ids = x.ids[1:]
	}
	if len(x.ids) > 2*len(x.live)+16 {
		x.ids = slices.DeleteFunc(x.ids, func(id int64) bool {
			_, ok := x.live[id]
			return !ok
		})
	}
}

// after yields the ids greater than id in order.
func (x *index) after(id int64) iter.Seq[int64] {
	return func(yield func(int64) bool) {
		i, found := slices.BinarySearch(x.ids, id)
		if found {
			i++
		}
		for ; i < len(x.ids); i++ {
			if _, ok := x.live[x.ids[i]]; ok && !yield(x.ids[i]) {
				return
			}
		}
	}
}

// before yields the ids smaller than id in descending order.
func (x *index) before(id int64) iter.Seq[int64] {
	return func(yield func(int64) bool) {
		i, _ := slices.BinarySearch(x.ids, id)
		for i--; i >= 0; i-- {
			if _, ok := x.live[x.ids[i]]; ok && !yield(x.ids[i]) {
				return
			}
		}
	}
}
