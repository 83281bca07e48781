package reconcile

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
)

// canonicalJSON writes a document in its one form: members sorted, numbers by
// value, no white space. Of a member that appears twice the last one counts,
// as it does in databases.
func canonicalJSON(text string) (string, bool) {
	document, err := decodeJSON([]byte(text))
	if err != nil {
		return "", false
	}
	var b strings.Builder
	writeJSON(&b, document)
	return b.String(), true
}

func decodeJSON(text []byte) (any, error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var document any
	if err := decoder.Decode(&document); err != nil {
		return nil, err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one JSON document")
	}
	return document, nil
}

func writeJSON(b *strings.Builder, node any) {
	switch x := node.(type) {
	case map[string]any:
		names := make([]string, 0, len(x))
		for name := range x {
			names = append(names, name)
		}
		slices.Sort(names)
		b.WriteByte('{')
		for i, name := range names {
			if i > 0 {
				b.WriteByte(',')
			}
			writeText(b, name)
			b.WriteByte(':')
			writeJSON(b, x[name])
		}
		b.WriteByte('}')
	case []any:
		b.WriteByte('[')
		for i, item := range x {
			if i > 0 {
				b.WriteByte(',')
			}
			writeJSON(b, item)
		}
		b.WriteByte(']')
	case json.Number:
		text, ok := canonicalNumber(x.String())
		if !ok {
			text = x.String()
		}
		b.WriteString(text)
	case string:
		writeText(b, x)
	case bool:
		if x {
			b.WriteString("true")
		} else {
			b.WriteString("false")
		}
	default:
		b.WriteString("null")
	}
}

func writeText(b *strings.Builder, text string) {
	encoded, err := json.Marshal(text)
	if err != nil { // cannot happen to a string
		encoded = []byte(`""`)
	}
	b.Write(encoded)
}

// lookup follows a path of member names, "customer.address.city", into a
// document. A leading "$." may be written.
func lookup(document any, path string) (any, bool) {
	for name := range strings.SplitSeq(strings.TrimPrefix(path, "$."), ".") {
		object, ok := document.(map[string]any)
		if !ok {
			return nil, false
		}
		if document, ok = object[name]; !ok {
			return nil, false
		}
	}
	return document, true
}

// documentValue makes a node of a document a value of the kind asked for. Left
// to itself a node is what JSON says it is.
func documentValue(node any, c column) Value {
	switch x := node.(type) {
	case nil:
		return Null
	case map[string]any, []any:
		var b strings.Builder
		writeJSON(&b, x)
		return Value{kind: KindJSON, text: b.String(), raw: b.String()}
	case string:
		if c.as == KindJSON {
			var b strings.Builder
			writeText(&b, x)
			return Value{kind: KindJSON, text: b.String(), raw: b.String()}
		}
		return c.value(x)
	}
	return c.value(node)
}
