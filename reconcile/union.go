package reconcile

import (
	"bufio"
	"container/heap"
	"encoding/binary"
	"errors"
	"io"
	"iter"
	"os"
	"slices"
)

// unionKeys is how many keys a union holds in memory.
const unionKeys = 200_000

// union collects keys and yields each once, in order. What does not fit into
// memory waits in sorted runs in a file, which is gone with the process.
type union struct {
	kinds  []KeyKind
	dir    string
	held   []string // orders of keys
	most   int
	file   *os.File
	size   int64
	chunks []chunk
}

// chunk is where in the file a sorted run lies.
type chunk struct{ from, to int64 }

func newUnion(kinds []KeyKind, dir string) *union {
	return &union{kinds: kinds, dir: dir, most: unionKeys}
}

func (u *union) add(key Key) error {
	u.held = append(u.held, key.order)
	if len(u.held) < u.most {
		return nil
	}
	u.settle()
	if len(u.held) < u.most/2 { // mostly the same ones again
		return nil
	}
	return u.spill()
}

func (u *union) settle() {
	slices.Sort(u.held)
	u.held = slices.Compact(u.held)
}

func (u *union) spill() (err error) {
	if u.file == nil {
		if u.file, err = os.CreateTemp(u.dir, "waybill-keys-*"); err != nil {
			return err
		}
		_ = os.Remove(u.file.Name()) // where that is not possible, close does it
	}
	c := chunk{from: u.size}
	out := bufio.NewWriter(u.file)
	var length [binary.MaxVarintLen64]byte
	for _, order := range u.held {
		n := binary.PutUvarint(length[:], uint64(len(order)))
		_, _ = out.Write(length[:n]) // Flush reports what failed
		_, _ = out.WriteString(order)
		u.size += int64(n + len(order))
	}
	c.to = u.size
	u.chunks = append(u.chunks, c)
	clear(u.held)
	u.held = u.held[:0]
	return out.Flush()
}

// sorted yields each key once, in order. No key may be added any more.
func (u *union) sorted() iter.Seq2[Key, error] {
	return func(yield func(Key, error) bool) {
		u.settle()
		var h orders
		take := func(next func() (string, error)) error {
			order, err := next()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err == nil {
				heap.Push(&h, source{order, next})
			}
			return err
		}
		sources := []func() (string, error){fromMemory(u.held)}
		for _, c := range u.chunks {
			sources = append(sources, fromFile(io.NewSectionReader(u.file, c.from, c.to-c.from)))
		}
		for _, next := range sources {
			if err := take(next); err != nil {
				yield(Key{}, err)
				return
			}
		}
		last, some := "", false
		for h.Len() > 0 {
			least := heap.Pop(&h).(source)
			if !some || least.order != last {
				key, err := keyFromOrder(u.kinds, least.order)
				if !yield(key, err) || err != nil {
					return
				}
				last, some = least.order, true
			}
			if err := take(least.next); err != nil {
				yield(Key{}, err)
				return
			}
		}
	}
}

func (u *union) close() {
	if u.file != nil {
		_ = u.file.Close()
		_ = os.Remove(u.file.Name())
	}
}

func fromMemory(held []string) func() (string, error) {
	return func() (string, error) {
		if len(held) == 0 {
			return "", io.EOF
		}
		order := held[0]
		held = held[1:]
		return order, nil
	}
}

func fromFile(file io.Reader) func() (string, error) {
	in := bufio.NewReader(file)
	return func() (string, error) {
		length, err := binary.ReadUvarint(in)
		if err != nil {
			return "", err
		}
		order := make([]byte, length)
		_, err = io.ReadFull(in, order)
		return string(order), err
	}
}

// source is a sorted run with its next key.
type source struct {
	order string
	next  func() (string, error)
}

// orders is a heap of them.
type orders []source

func (o orders) Len() int           { return len(o) }
func (o orders) Less(i, j int) bool { return o[i].order < o[j].order }
func (o orders) Swap(i, j int)      { o[i], o[j] = o[j], o[i] }
func (o *orders) Push(x any)        { *o = append(*o, x.(source)) }
func (o *orders) Pop() any {
	old := *o
	last := old[len(old)-1]
	*o = old[:len(old)-1]
	return last
}
