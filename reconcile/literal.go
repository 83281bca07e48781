package reconcile

import (
	"bytes"
	"strconv"
	"unicode/utf8"
)

// literal is a value within a document, as it stands there; empty for none.
type literal []byte

// literals finds the values of some paths in a document in one pass, and makes
// nothing of them. It reports false for what is no JSON, and also for what is
// so unusual (a member twice, a name with an escape) that only a decoder should
// tell what it means.
func literals(document []byte, paths [][]string, found []literal) bool {
	for i := range found {
		found[i] = nil
	}
	if len(paths) > 64 {
		return false
	}
	s := walker{text: document, found: found}
	end, ok := s.value(0, paths, 0, true)
	return ok && s.space(end) == len(document)
}

type walker struct {
	text  []byte
	found []literal
}

const deepestLiteral = 200

func (s *walker) space(at int) int {
	for at < len(s.text) && (s.text[at] == ' ' || s.text[at] == '\t' || s.text[at] == '\n' || s.text[at] == '\r') {
		at++
	}
	return at
}

// value walks over one value and returns where it ends. The paths that lead
// through it agree in their first depth names; on is false where none does.
func (s *walker) value(at int, paths [][]string, depth int, on bool) (int, bool) {
	at = s.space(at)
	if at >= len(s.text) || depth > deepestLiteral {
		return at, false
	}
	switch c := s.text[at]; {
	case c == '{':
		return s.object(at+1, paths, depth, on)
	case c == '[':
		return s.array(at+1, depth)
	case c == '"':
		return s.string(at)
	case c == '-' || c >= '0' && c <= '9':
		return s.number(at)
	}
	for _, word := range []string{"true", "false", "null"} {
		if bytes.HasPrefix(s.text[at:], []byte(word)) {
			return at + len(word), true
		}
	}
	return at, false
}

func (s *walker) object(at int, paths [][]string, depth int, on bool) (int, bool) {
	at = s.space(at)
	if at < len(s.text) && s.text[at] == '}' {
		return at + 1, true
	}
	var seen uint64 // of the paths, by their place
	for {
		at = s.space(at)
		if at >= len(s.text) || s.text[at] != '"' {
			return at, false
		}
		end, ok := s.string(at)
		if !ok {
			return end, false
		}
		name := s.text[at+1 : end-1]
		at = s.space(end)
		if at >= len(s.text) || s.text[at] != ':' {
			return at, false
		}
		at = s.space(at + 1)
		if on && bytes.IndexByte(name, '\\') >= 0 {
			return at, false
		}
		var here uint64 // of the paths that lead on by this name
		further := false
		for i, path := range paths {
			if on && depth < len(path) && path[depth] == string(name) {
				here |= 1 << i
				further = further || depth+1 < len(path)
			}
		}
		if here&seen != 0 {
			return at, false
		}
		seen |= here
		if end, ok = s.value(at, s.those(paths, here, further), depth+1, further); !ok {
			return end, false
		}
		for i, path := range paths {
			if here&(1<<i) != 0 && depth+1 == len(path) {
				s.found[i] = s.text[at:end]
			}
		}
		at = s.space(end)
		if at >= len(s.text) || s.text[at] != ',' && s.text[at] != '}' {
			return at, false
		}
		if s.text[at] == '}' {
			return at + 1, true
		}
		at++
	}
}

// those returns the paths of a set, each in its place, if they lead further.
func (s *walker) those(paths [][]string, set uint64, further bool) [][]string {
	if !further {
		return nil
	}
	some := make([][]string, len(paths))
	for i, path := range paths {
		if set&(1<<i) != 0 {
			some[i] = path
		}
	}
	return some
}

func (s *walker) array(at, depth int) (int, bool) {
	at = s.space(at)
	if at < len(s.text) && s.text[at] == ']' {
		return at + 1, true
	}
	for {
		end, ok := s.value(at, nil, depth+1, false)
		if !ok {
			return end, false
		}
		at = s.space(end)
		if at >= len(s.text) || s.text[at] != ',' && s.text[at] != ']' {
			return at, false
		}
		if s.text[at] == ']' {
			return at + 1, true
		}
		at++
	}
}

// string returns where the string that begins here ends.
func (s *walker) string(at int) (int, bool) {
	for at++; at < len(s.text); at++ {
		switch c := s.text[at]; {
		case c == '"':
			return at + 1, true
		case c < 0x20:
			return at, false
		case c == '\\':
			at++
			if at >= len(s.text) {
				return at, false
			}
			switch s.text[at] {
			case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			case 'u':
				if at+4 >= len(s.text) {
					return at, false
				}
				for _, digit := range s.text[at+1 : at+5] {
					if !(digit >= '0' && digit <= '9' || digit >= 'a' && digit <= 'f' || digit >= 'A' && digit <= 'F') {
						return at, false
					}
				}
				at += 4
			default:
				return at, false
			}
		}
	}
	return at, false
}

func (s *walker) number(at int) (int, bool) {
	if s.text[at] == '-' {
		at++
	}
	digits := func() bool {
		from := at
		for at < len(s.text) && s.text[at] >= '0' && s.text[at] <= '9' {
			at++
		}
		return at > from
	}
	if at < len(s.text) && s.text[at] == '0' {
		at++
	} else if !digits() {
		return at, false
	}
	if at < len(s.text) && s.text[at] == '.' {
		at++
		if !digits() {
			return at, false
		}
	}
	if at < len(s.text) && (s.text[at] == 'e' || s.text[at] == 'E') {
		at++
		if at < len(s.text) && (s.text[at] == '+' || s.text[at] == '-') {
			at++
		}
		if !digits() {
			return at, false
		}
	}
	return at, true
}

// plain returns the content of a string without escapes.
func (v literal) plain() ([]byte, bool) {
	if len(v) < 2 || v[0] != '"' {
		return nil, false
	}
	text := v[1 : len(v)-1]
	return text, bytes.IndexByte(text, '\\') < 0 && utf8.Valid(text)
}

// value decodes what the literal holds, as the i-th compared column would.
func (v literal) value(c column) Value {
	if len(v) == 0 {
		return Null
	}
	node, err := decodeJSON(v)
	if err != nil { // it was walked over without complaint
		return Value{kind: KindText, text: string(v), raw: string(v)}
	}
	return documentValue(node, c)
}

// same reports whether the value and one of another arm are equal as they
// stand; false says nothing.
func (v literal) same(c column, kind Kind, other any) bool {
	text, is := v.as(c, kind)
	switch x := other.(type) {
	case nil:
		return is && text == nil
	case string:
		return is && text != nil && string(text) == x
	case []byte:
		return is && text != nil && bytes.Equal(text, x)
	case int64:
		var digits [20]byte
		return is && bytes.Equal(text, strconv.AppendInt(digits[:0], x, 10))
	}
	return false
}

// sameText does the same for a text of another arm, nil for NULL.
func (v literal) sameText(c column, kind Kind, other []byte) bool {
	text, is := v.as(c, kind)
	return is && (text == nil) == (other == nil) && bytes.Equal(text, other)
}

// as returns the text by which the value is compared with one of a kind, nil for
// null; false where that cannot be told from how it stands.
func (v literal) as(c column, kind Kind) ([]byte, bool) {
	if len(v) == 0 {
		return nil, true
	}
	as := c.as
	text := []byte(v)
	switch v[0] {
	case '"':
		var ok bool
		if text, ok = v.plain(); !ok || as == KindJSON {
			return nil, false
		}
		if as == KindAuto {
			as = KindText
		}
	case 'n':
		return nil, true
	case '{', '[', 't', 'f':
		return nil, false
	default:
		if as == KindAuto {
			as = KindNumber
		}
		if as != KindNumber {
			return nil, false
		}
	}
	return text, as == kind
}
