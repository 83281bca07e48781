package reconcile

import (
	"fmt"
	"iter"

	"github.com/waybillhq/waybill"
)

// Keyed is an item with its key.
type Keyed[T any] struct {
	Key  Key
	Item T
}

// Joined is what the arms know of one key; an arm without it has the zero item.
type Joined struct {
	Key   Key
	Write *Row
	Log   []Event
	Read  *Row
}

// Merge walks three streams that are sorted by key, and yields each key once
// with what each stream has of it. It holds one item of each. A stream that is
// not sorted, or has a key twice, ends it with an error: its order by the
// database is then not the order of its keys, and a merge would miss some.
func Merge(write iter.Seq2[Keyed[*Row], error], log iter.Seq2[Keyed[[]Event], error], read iter.Seq2[Keyed[*Row], error]) iter.Seq2[Joined, error] {
	return func(yield func(Joined, error) bool) {
		w, l, r := newHead("write side", write), newHead("log", log), newHead("read side", read)
		defer w.stop()
		defer l.stop()
		defer r.stop()
		for {
			least, some := Key{}, false
			for _, candidate := range []*Key{w.key(), l.key(), r.key()} {
				if candidate != nil && (!some || candidate.Compare(least) < 0) {
					least, some = *candidate, true
				}
			}
			for _, err := range []error{w.err, l.err, r.err} {
				if err != nil {
					yield(Joined{}, err)
					return
				}
			}
			if !some {
				return
			}
			joined := Joined{Key: least, Write: w.take(least), Log: l.take(least), Read: r.take(least)}
			if !yield(joined, nil) {
				return
			}
		}
	}
}

// head is a stream with its next item.
type head[T any] struct {
	arm     string
	next    func() (Keyed[T], error, bool)
	stop    func()
	current Keyed[T]
	ok      bool
	err     error
}

func newHead[T any](arm string, stream iter.Seq2[Keyed[T], error]) *head[T] {
	h := &head[T]{arm: arm}
	h.next, h.stop = iter.Pull2(stream)
	h.advance(nil)
	return h
}

func (h *head[T]) key() *Key {
	if !h.ok {
		return nil
	}
	return &h.current.Key
}

// take returns the item of the key, if this stream stands at it.
func (h *head[T]) take(key Key) T {
	var none T
	if !h.ok || h.current.Key.Compare(key) != 0 {
		return none
	}
	item := h.current.Item
	h.advance(&key)
	return item
}

func (h *head[T]) advance(last *Key) {
	h.current, h.err, h.ok = h.next()
	if h.err != nil {
		h.ok = false
		return
	}
	if h.ok && last != nil && h.current.Key.Compare(*last) <= 0 {
		h.ok = false
		h.err = &waybill.Error{
			Op: "merge", Key: h.arm, Err: fmt.Errorf("key %s comes after %s", h.current.Key, *last),
			Hint: "is the key unique, and its type the one that the check names?",
		}
	}
}

// each makes a stream of a slice.
func each[T any](items []Keyed[T]) iter.Seq2[Keyed[T], error] {
	return func(yield func(Keyed[T], error) bool) {
		for _, item := range items {
			if !yield(item, nil) {
				return
			}
		}
	}
}
