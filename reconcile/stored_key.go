package reconcile

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/waybillhq/waybill"
)

// A key is stored as the hex of the bytes that it sorts by: the text sorts as
// the key does, and the key can be made of it again.

func (k Key) stored() string { return storedOrder(k.order) }

func storedOrder(order string) string { return hex.EncodeToString([]byte(order)) }

// orderOf undoes storedOrder; what is no hex has no order.
func orderOf(stored string) string {
	order, err := hex.DecodeString(stored)
	if err != nil {
		return ""
	}
	return string(order)
}

func keyFromStored(kinds []KeyKind, stored string) (Key, error) {
	order, err := hex.DecodeString(stored)
	if err != nil {
		return Key{}, &waybill.Error{Op: "read key", Key: stored, Err: err}
	}
	return keyFromOrder(kinds, string(order))
}

// keyFromOrder undoes NewKey.
func keyFromOrder(kinds []KeyKind, order string) (Key, error) {
	fail := func() (Key, error) {
		return Key{}, &waybill.Error{Op: "read key", Key: hex.EncodeToString([]byte(order)), Err: fmt.Errorf("%w: it was stored for another type", errKey)}
	}
	parts, rest := make([]any, len(kinds)), order
	for i, kind := range kinds {
		switch kind {
		case KeyInteger:
			if len(rest) < 9 {
				return fail()
			}
			n := binary.BigEndian.Uint64([]byte(rest[1:9]))
			parts[i] = n
			if rest[0] == 0 || n < 1<<63 {
				parts[i] = int64(n)
			}
			rest = rest[9:]
		case KeyUUID:
			if len(rest) < 16 {
				return fail()
			}
			parts[i], rest = rest[:16], rest[16:]
		default:
			end := partEnd(rest)
			if end < 0 {
				return fail()
			}
			text := strings.ReplaceAll(rest[:end], "\x00\xff", "\x00")
			if parts[i] = text; kind == KeyBinary {
				parts[i] = []byte(text)
			}
			rest = rest[end+2:]
		}
	}
	key, err := NewKey(kinds, parts)
	if err != nil || rest != "" || key.order != order {
		return fail()
	}
	return key, nil
}

// partEnd returns where the two NULs stand that end a part; NULs within it are
// each followed by 0xff.
func partEnd(rest string) int {
	for i := 0; i+1 < len(rest); i++ {
		if rest[i] != 0 {
			continue
		}
		if rest[i+1] == 0 {
			return i
		}
		i++
	}
	return -1
}
