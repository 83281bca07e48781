package mybinlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"

	"github.com/go-mysql-org/go-mysql/mysql"
)

// errRows says that an event of rows is not what the table's description in
// the log promises.
var errRows = errors.New("the rows do not fit their table's description")

// rowsHeader is the beginning of an event of rows.
type rowsHeader struct {
	table         uint64
	columns       int
	before, after []byte // which columns the images have; after is nil without a second image
	partial       bool
}

// The low bits of the flags of an event of rows are of no use here. Where an
// event is of version 2, data that concerns engines stands before the columns.
func readRowsHeader(kind rowsKind, body []byte) (h rowsHeader, rest []byte, err error) {
	if len(body) < 8 {
		return h, nil, errRows
	}
	h.table, rest = tableID(body), body[8:]
	if kind.version == 2 {
		if len(rest) < 2 {
			return h, nil, errRows
		}
		extra := int(binary.LittleEndian.Uint16(rest))
		if extra < 2 || len(rest) < extra {
			return h, nil, errRows
		}
		rest = rest[extra:]
	}
	count, rest, err := packedInt(rest)
	if err != nil || count > 4096 {
		return h, nil, errRows
	}
	h.columns, h.partial = int(count), kind.partial
	bytes := (h.columns + 7) / 8
	if len(rest) < bytes {
		return h, nil, errRows
	}
	h.before, rest = rest[:bytes], rest[bytes:]
	if kind.two {
		if len(rest) < bytes {
			return h, nil, errRows
		}
		h.after, rest = rest[:bytes], rest[bytes:]
	}
	return h, rest, nil
}

func tableID(body []byte) uint64 {
	return uint64(binary.LittleEndian.Uint32(body)) | uint64(binary.LittleEndian.Uint16(body[4:]))<<32
}

// packedInt reads the servers' integers of variable length.
func packedInt(data []byte) (value uint64, rest []byte, err error) {
	if len(data) == 0 {
		return 0, nil, errRows
	}
	size := map[byte]int{0xfc: 2, 0xfd: 3, 0xfe: 8}[data[0]]
	if size == 0 {
		return uint64(data[0]), data[1:], nil
	}
	if len(data) < 1+size {
		return 0, nil, errRows
	}
	return little(data[1 : 1+size]), data[1+size:], nil
}

func little(data []byte) (value uint64) {
	for i, b := range data {
		value |= uint64(b) << (8 * i)
	}
	return value
}

func has(bitmap []byte, i int) bool { return i/8 < len(bitmap) && bitmap[i/8]&(1<<(i%8)) != 0 }

// image is one state of a row: the values of the columns asked for, nil for
// NULL and for what is not in the image.
type image [2][]byte

// readImage passes over one image and keeps the values of two columns at most.
// The value of a number or a text is its bytes without any length before them.
func (s *shape) readImage(present, data []byte, wanted [2]int) (values image, rest []byte, err error) {
	count := 0
	for _, b := range present {
		count += bits.OnesCount8(b)
	}
	nulls := (count + 7) / 8
	if len(data) < nulls {
		return values, nil, errRows
	}
	null, data := data[:nulls], data[nulls:]
	at := 0
	for column := range s.kinds {
		if !has(present, column) {
			continue
		}
		isNull := has(null, at)
		at++
		if isNull {
			continue
		}
		before, size, err := s.sizeOf(column, data)
		if err != nil || size < 0 || before+size > len(data) {
			return values, nil, errRows
		}
		for i, one := range wanted {
			if one == column {
				values[i] = data[before : before+size : before+size]
			}
		}
		data = data[before+size:]
	}
	return values, data, nil
}

// sizeOf returns how many bytes a value takes: of its length, and of itself.
func (s *shape) sizeOf(column int, data []byte) (before, size int, err error) {
	kind, meta := s.kinds[column], int(s.meta[column])
	switch kind {
	case mysql.MYSQL_TYPE_NULL:
		return 0, 0, nil
	case mysql.MYSQL_TYPE_TINY, mysql.MYSQL_TYPE_YEAR:
		return 0, 1, nil
	case mysql.MYSQL_TYPE_SHORT:
		return 0, 2, nil
	case mysql.MYSQL_TYPE_INT24, mysql.MYSQL_TYPE_DATE, mysql.MYSQL_TYPE_NEWDATE, mysql.MYSQL_TYPE_TIME:
		return 0, 3, nil
	case mysql.MYSQL_TYPE_LONG, mysql.MYSQL_TYPE_FLOAT, mysql.MYSQL_TYPE_TIMESTAMP:
		return 0, 4, nil
	case mysql.MYSQL_TYPE_LONGLONG, mysql.MYSQL_TYPE_DOUBLE, mysql.MYSQL_TYPE_DATETIME:
		return 0, 8, nil
	case mysql.MYSQL_TYPE_TIMESTAMP2:
		return 0, 4 + (meta+1)/2, nil
	case mysql.MYSQL_TYPE_DATETIME2:
		return 0, 5 + (meta+1)/2, nil
	case mysql.MYSQL_TYPE_TIME2:
		return 0, 3 + (meta+1)/2, nil
	case mysql.MYSQL_TYPE_NEWDECIMAL:
		return 0, decimalSize(meta>>8, meta&0xff), nil
	case mysql.MYSQL_TYPE_BIT:
		return 0, ((meta>>8)*8 + meta&0xff + 7) / 8, nil
	case mysql.MYSQL_TYPE_ENUM, mysql.MYSQL_TYPE_SET:
		return 0, meta & 0xff, nil
	case mysql.MYSQL_TYPE_STRING:
		return stringSize(meta, data)
	case mysql.MYSQL_TYPE_VARCHAR, mysql.MYSQL_TYPE_VAR_STRING:
		return prefixed(lengthBytes(meta), data)
	case mysql.MYSQL_TYPE_BLOB, mysql.MYSQL_TYPE_JSON, mysql.MYSQL_TYPE_GEOMETRY, mysql.MYSQL_TYPE_VECTOR,
		mysql.MYSQL_TYPE_TINY_BLOB, mysql.MYSQL_TYPE_MEDIUM_BLOB, mysql.MYSQL_TYPE_LONG_BLOB:
		return prefixed(meta, data)
	}
	return 0, 0, fmt.Errorf("the type %d is not known", kind)
}

// stringSize is for CHAR and what is logged under its type: the first byte of
// the description is the real type, of which two bits are the high ones of a
// length over 255.
func stringSize(meta int, data []byte) (before, size int, err error) {
	kind, length := byte(meta>>8), meta&0xff
	if kind == 0 {
		return prefixed(lengthBytes(length), data)
	}
	if kind&0x30 != 0x30 {
		length |= int((kind&0x30)^0x30) << 4
		kind |= 0x30
	}
	if kind == mysql.MYSQL_TYPE_ENUM || kind == mysql.MYSQL_TYPE_SET {
		return 0, length, nil
	}
	return prefixed(lengthBytes(length), data)
}

func lengthBytes(most int) int {
	if most < 256 {
		return 1
	}
	return 2
}

func prefixed(bytes int, data []byte) (before, size int, err error) {
	if bytes < 1 || bytes > 4 || len(data) < bytes {
		return 0, 0, errRows
	}
	return bytes, int(little(data[:bytes])), nil
}

// decimalSize: nine digits take four bytes, and fewer as many as they need.
func decimalSize(precision, scale int) int {
	part := func(digits int) int {
		return digits/9*4 + [9]int{0, 1, 1, 2, 2, 3, 3, 4, 4}[digits%9]
	}
	if precision < scale {
		return -1
	}
	return part(precision-scale) + part(scale)
}
