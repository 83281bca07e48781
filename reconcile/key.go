package reconcile

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/waybillhq/waybill"
)

// KeyKind is the type of one part of a key. There is no float among them: a
// key must be equal to itself in every database.
type KeyKind string

// The types of key parts and how each is ordered.
const (
	KeyText    KeyKind = "text"    // bytewise, in UTF-8
	KeyInteger KeyKind = "integer" // by value, from -2^63 to 2^64-1
	KeyUUID    KeyKind = "uuid"    // by its 16 bytes
	KeyBinary  KeyKind = "binary"  // bytewise
)

// Key identifies one row over all arms. Its parts are in the order of the
// check's key.
type Key struct {
	order string // compares bytewise as the key does
	parts []any  // int64 or uint64, string, []byte
	kinds []KeyKind
}

var errKey = errors.New("not a key of this check")

// NewKey makes a key from what a driver returned for each part.
func NewKey(kinds []KeyKind, parts []any) (Key, error) {
	if len(kinds) != len(parts) {
		return Key{}, &waybill.Error{Op: "read key", Err: fmt.Errorf("%w: %d parts, want %d", errKey, len(parts), len(kinds))}
	}
	key := Key{parts: make([]any, len(parts)), kinds: kinds}
	var order []byte
	for i, part := range parts {
		var err error
		if order, key.parts[i], err = appendPart(order, kinds[i], part); err != nil {
			return Key{}, &waybill.Error{Op: "read key", Key: fmt.Sprintf("%.80v", part), Err: err}
		}
	}
	key.order = string(order)
	return key, nil
}

// ParseKey makes a key from text, one for each part.
func ParseKey(kinds []KeyKind, texts []string) (Key, error) {
	parts := make([]any, len(texts))
	for i, text := range texts {
		parts[i] = text
		if i < len(kinds) && kinds[i] == KeyBinary {
			raw, err := hex.DecodeString(strings.TrimPrefix(text, "0x"))
			if err != nil {
				return Key{}, &waybill.Error{Op: "read key", Key: text, Err: err, Hint: "write binary keys in hex"}
			}
			parts[i] = raw
		}
	}
	return NewKey(kinds, parts)
}

func appendPart(order []byte, kind KeyKind, part any) ([]byte, any, error) {
	text, isText := part.(string)
	if raw, ok := part.([]byte); ok {
		text, isText = string(raw), true
	}
	switch kind {
	case KeyInteger:
		return appendInteger(order, part, text, isText)
	case KeyUUID:
		if raw, ok := part.([16]byte); ok {
			text, isText = string(raw[:]), true
		}
		canonical, ok := canonicalUUID(text)
		if !isText || !ok {
			return nil, nil, fmt.Errorf("%w: no UUID", errKey)
		}
		return append(order, uuidBytes(canonical)...), canonical, nil
	case KeyText, KeyBinary:
		if n, ok := part.(int64); ok && kind == KeyText {
			text, isText = strconv.FormatInt(n, 10), true
		}
		if !isText {
			return nil, nil, fmt.Errorf("%w: %T is no %s", errKey, part, kind)
		}
		// NUL ends a part and is doubled within it, so that (a, b) sorts as a
		// pair does, and ("a", "b") differs from ("ab", "").
		order = append(order, strings.ReplaceAll(text, "\x00", "\x00\xff")...)
		order = append(order, 0, 0)
		if kind == KeyBinary {
			return order, []byte(text), nil
		}
		return order, text, nil
	}
	return nil, nil, fmt.Errorf("%w: unknown type %q", errKey, kind)
}

// appendOrder appends what a row's key compares by. It does the same as NewKey
// for the forms in which drivers usually return parts, without making a key.
func appendOrder(order []byte, kinds []KeyKind, row []any) ([]byte, error) {
	for i, kind := range kinds {
		switch part := row[i].(type) {
		case string:
			if kind == KeyText && strings.IndexByte(part, 0) < 0 {
				order = append(append(order, part...), 0, 0)
				continue
			}
			if kind == KeyUUID && len(part) == 36 {
				if raw, ok := appendUUID(order, part); ok {
					order = raw
					continue
				}
			}
		case []byte:
			if (kind == KeyText || kind == KeyBinary) && bytes.IndexByte(part, 0) < 0 {
				order = append(append(order, part...), 0, 0)
				continue
			}
			if kind == KeyUUID && len(part) == 16 {
				order = append(order, part...)
				continue
			}
			if kind == KeyUUID && len(part) == 36 {
				if raw, ok := appendUUID(order, part); ok {
					order = raw
					continue
				}
			}
		case int64:
			if kind == KeyInteger {
				sign := byte(1)
				if part < 0 {
					sign = 0
				}
				order = binary.BigEndian.AppendUint64(append(order, sign), uint64(part))
				continue
			}
		}
		var err error
		if order, _, err = appendPart(order, kind, row[i]); err != nil {
			return nil, &waybill.Error{Op: "read key", Key: fmt.Sprintf("%.80v", row[i]), Err: err}
		}
	}
	return order, nil
}

// appendUUID appends the 16 bytes of a UUID in its usual text.
func appendUUID[T string | []byte](order []byte, text T) ([]byte, bool) {
	high, filled := byte(0), false
	for i := range len(text) {
		c := text[i]
		switch {
		case i == 8 || i == 13 || i == 18 || i == 23:
			if c != '-' {
				return nil, false
			}
			continue
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return nil, false
		}
		if filled {
			order = append(order, high<<4|c)
		}
		high, filled = c, !filled
	}
	return order, true
}

func appendInteger(order []byte, part any, text string, isText bool) ([]byte, any, error) {
	if isText {
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			part = n
		} else if u, err := strconv.ParseUint(text, 10, 64); err == nil {
			part = u
		}
	}
	if n, ok := part.(int32); ok {
		part = int64(n)
	}
	if u, ok := part.(uint64); ok && u <= 1<<63-1 {
		part = int64(u)
	}
	switch n := part.(type) {
	case int64:
		sign := byte(1)
		if n < 0 {
			sign = 0
		}
		return binary.BigEndian.AppendUint64(append(order, sign), uint64(n)), n, nil
	case uint64:
		return binary.BigEndian.AppendUint64(append(order, 1), n), n, nil
	}
	return nil, nil, fmt.Errorf("%w: %T is no integer of 64 bits", errKey, part)
}

func uuidBytes(canonical string) []byte {
	raw, _ := hex.DecodeString(strings.ReplaceAll(canonical, "-", ""))
	return raw
}

// Compare orders keys as every arm's statement does.
func (k Key) Compare(other Key) int { return strings.Compare(k.order, other.order) }

// String returns the parts, joined by a slash where there are several.
func (k Key) String() string {
	texts := make([]string, len(k.parts))
	for i, part := range k.parts {
		switch x := part.(type) {
		case []byte:
			texts[i] = "0x" + hex.EncodeToString(x)
		default:
			texts[i] = fmt.Sprint(x)
		}
		if len(k.parts) > 1 {
			texts[i] = strings.NewReplacer(`\`, `\\`, `/`, `\/`).Replace(texts[i])
		}
	}
	return strings.Join(texts, "/")
}

// Range is a half-open range of keys; a missing end is open.
type Range struct {
	From *Key // included
	To   *Key // not included
	only *Key // this key alone
	// among, where it is not nil, are the only keys, in ascending order.
	among []Key
}

// Contains reports whether a key lies in the range.
func (r Range) Contains(key Key) bool {
	if r.only != nil {
		return r.only.Compare(key) == 0
	}
	if r.among != nil {
		_, found := slices.BinarySearchFunc(r.among, key, Key.Compare)
		return found
	}
	return (r.From == nil || r.From.Compare(key) <= 0) && (r.To == nil || key.Compare(*r.To) < 0)
}

// String returns "[from, to)", or the key where there is one, or the first and
// the last where there are some.
func (r Range) String() string {
	switch n := len(r.among); {
	case r.only != nil:
		return r.only.String()
	case n == 1:
		return r.among[0].String()
	case n > 1:
		return fmt.Sprintf("%d keys from %s to %s", n, r.among[0], r.among[n-1])
	}
	from, to := "start", "end"
	if r.From != nil {
		from = r.From.String()
	}
	if r.To != nil {
		to = r.To.String()
	}
	return "[" + from + ", " + to + ")"
}
