package mybinlog

import (
	"testing"

	"github.com/go-mysql-org/go-mysql/mysql"
)

func TestDecimalSize(t *testing.T) {
	for _, test := range []struct{ precision, scale, want int }{
		{1, 0, 1}, {2, 0, 1}, {3, 0, 2}, {9, 0, 4}, {10, 0, 5}, {18, 9, 8}, {20, 4, 10}, {65, 30, 30}, {5, 5, 3},
	} {
		if got := decimalSize(test.precision, test.scale); got != test.want {
			t.Errorf("decimal(%d,%d): got %d, want %d", test.precision, test.scale, got, test.want)
		}
	}
}

func TestNumbers(t *testing.T) {
	for _, test := range []struct {
		name     string
		kind     byte
		unsigned bool
		value    []byte
		want     int64
		ok       bool
	}{
		{"bigint", mysql.MYSQL_TYPE_LONGLONG, false, []byte{1, 2, 0, 0, 0, 0, 0, 0}, 513, true},
		{"negative bigint", mysql.MYSQL_TYPE_LONGLONG, false, []byte{255, 255, 255, 255, 255, 255, 255, 255}, -1, false},
		{"beyond int64", mysql.MYSQL_TYPE_LONGLONG, true, []byte{255, 255, 255, 255, 255, 255, 255, 255}, -1, false},
		{"zero", mysql.MYSQL_TYPE_LONGLONG, false, make([]byte, 8), 0, false},
		{"int", mysql.MYSQL_TYPE_LONG, false, []byte{255, 255, 255, 127}, 2147483647, true},
		{"negative int", mysql.MYSQL_TYPE_LONG, false, []byte{255, 255, 255, 255}, -1, false},
		{"unsigned int", mysql.MYSQL_TYPE_LONG, true, []byte{255, 255, 255, 255}, 4294967295, true},
		{"mediumint", mysql.MYSQL_TYPE_INT24, true, []byte{0, 0, 128}, 8388608, true},
		{"text", mysql.MYSQL_TYPE_VARCHAR, false, []byte("1"), 0, false},
	} {
		s := &shape{kinds: []byte{test.kind}, unsigned: test.unsigned}
		if got, ok := s.number(test.value); ok != test.ok || ok && got != test.want {
			t.Errorf("%s: got %d, %v, want %d, %v", test.name, got, ok, test.want, test.ok)
		}
	}
}

// Whatever the bytes are, reading ends, and within them.
func FuzzReadImage(f *testing.F) {
	f.Add([]byte{mysql.MYSQL_TYPE_LONGLONG, mysql.MYSQL_TYPE_VARCHAR}, uint16(300), []byte{3}, []byte{0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 'a', 'b'})
	f.Add([]byte{mysql.MYSQL_TYPE_STRING, mysql.MYSQL_TYPE_BLOB, mysql.MYSQL_TYPE_NEWDECIMAL}, uint16(4), []byte{7}, []byte{0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, kinds []byte, meta uint16, present, data []byte) {
		s := &shape{kinds: kinds, meta: make([]uint16, len(kinds))}
		for i := range s.meta {
			s.meta[i] = meta
		}
		values, rest, err := s.readImage(present, data, [2]int{0, len(kinds) - 1})
		if err == nil && len(rest) > len(data) || len(values[0])+len(values[1]) > 2*len(data) {
			t.Error("more was read than there is")
		}
	})
}

func FuzzReadRowsHeader(f *testing.F) {
	f.Add([]byte{1, 0, 0, 0, 0, 0, 1, 0, 2, 0, 3, 7}, true)
	f.Fuzz(func(t *testing.T, body []byte, two bool) {
		header, rest, err := readRowsHeader(rowsKind{version: 2, two: two}, body)
		if err == nil && len(header.before)+len(header.after)+len(rest) > len(body) {
			t.Error("more was read than there is")
		}
	})
}

func FuzzReadPayload(f *testing.F) {
	f.Add([]byte{2, 1, 0, 3, 1, 9, 1, 1, 5, 0, 1, 2, 3})
	f.Add([]byte{2, 3, 0xfc, 255, 0, 0, 1})
	f.Fuzz(func(t *testing.T, body []byte) {
		if _, data, err := readPayload(body); err == nil && len(data) > len(body) {
			t.Error("more was read than there is")
		}
	})
}
