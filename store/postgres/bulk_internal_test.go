package postgres

import (
	"bufio"
	"io"
	"slices"
	"testing"
)

// pieces is a connection on which each read finds one of them.
type pieces []int

func (p *pieces) Read(into []byte) (int, error) {
	if len(*p) == 0 {
		return 0, io.EOF
	}
	n := (*p)[0]
	*p = (*p)[1:]
	for i := range into[:n] {
		into[i] = byte(n)
	}
	return n, nil
}

func TestAReaderRestsWhileMoreIsSureToCome(t *testing.T) {
	in := pieces{100, sendBuffer, 3 * sendBuffer, 5000, 20, bulkBuffer, 7}
	var rested []int // pieces that were still to come
	r := bufio.NewReaderSize(&restingReader{in: &in, rest: func() { rested = append(rested, len(in)) }}, bulkBuffer)
	all, err := io.ReadAll(r)
	if want := 100 + 4*sendBuffer + 5000 + 20 + bulkBuffer + 7; err != nil || len(all) != want {
		t.Errorf("got %d bytes, %v, want %d", len(all), err, want)
	}
	// After a piece that is no full one, and where the buffer was full and more
	// lies there already, it reads on at once.
	if want := []int{5, 4}; !slices.Equal(rested, want) {
		t.Errorf("rested before pieces %v from the end, want %v", rested, want)
	}
}
