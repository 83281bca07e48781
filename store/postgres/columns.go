package postgres

import (
	"encoding/hex"
	"strconv"
	"strings"
	"time"

	"github.com/waybillhq/waybill"
)

// columns are events turned on their side: the parameters of insertEvents.
type columns struct {
	ids, tenants, aggregateTypes, aggregateIDs []string
	aggregateVersions                          []int64
	types                                      []string
	versions                                   []int32
	topics, keys                               []string
	payloads                                   [][]byte
	contentTypes                               []string
	headers                                    []*string
	occurred                                   []time.Time
}

func columnsOf(events []waybill.Event) (*columns, error) {
	n := len(events)
	text := make([]string, 8*n)
	take := func() []string {
		part := text[:0:n]
		text = text[n:]
		return part
	}
	c := &columns{
		ids: take(), tenants: take(), aggregateTypes: take(), aggregateIDs: take(), types: take(), topics: take(), keys: take(), contentTypes: take(),
		aggregateVersions: make([]int64, 0, n), versions: make([]int32, 0, n),
		payloads: make([][]byte, 0, n), headers: make([]*string, 0, n), occurred: make([]time.Time, 0, n),
	}
	for i := range events {
		e := &events[i]
		headers, err := e.MarshalHeaders()
		if err != nil {
			return nil, err
		}
		var headersText *string
		if headers != nil {
			headersText = new(string(headers))
		}
		data := e.Data
		if data == nil {
			data = []byte{} // nil would be NULL
		}
		c.ids = append(c.ids, e.ID)
		c.tenants = append(c.tenants, e.TenantID)
		c.aggregateTypes = append(c.aggregateTypes, e.AggregateType)
		c.aggregateIDs = append(c.aggregateIDs, e.AggregateID)
		c.aggregateVersions = append(c.aggregateVersions, e.AggregateVersion)
		c.types = append(c.types, e.Type)
		c.versions = append(c.versions, int32(e.SchemaVersion))
		c.topics = append(c.topics, e.Topic)
		c.keys = append(c.keys, e.EffectiveKey())
		c.payloads = append(c.payloads, data)
		c.contentTypes = append(c.contentTypes, e.ContentType)
		c.headers = append(c.headers, headersText)
		c.occurred = append(c.occurred, e.OccurredAt)
	}
	return c, nil
}

// arrays returns the parameters as pgx takes them.
func (c *columns) arrays() []any {
	return []any{
		c.ids, c.tenants, c.aggregateTypes, c.aggregateIDs, c.aggregateVersions, c.types, c.versions,
		c.topics, c.keys, c.payloads, c.contentTypes, c.headers, c.occurred,
	}
}

// first returns the parameters of insertEvent.
func (c *columns) first() []any {
	return []any{
		c.ids[0], c.tenants[0], c.aggregateTypes[0], c.aggregateIDs[0], c.aggregateVersions[0], c.types[0], c.versions[0],
		c.topics[0], c.keys[0], c.payloads[0], c.contentTypes[0], c.headers[0], c.occurred[0],
	}
}

// literals returns the parameters as PostgreSQL's text form of arrays, which
// every driver passes on unchanged.
func (c *columns) literals() []any {
	return []any{
		textArray(c.ids), textArray(c.tenants), textArray(c.aggregateTypes), textArray(c.aggregateIDs),
		arrayOf(c.aggregateVersions, func(b *strings.Builder, v int64) { b.WriteString(strconv.FormatInt(v, 10)) }),
		textArray(c.types),
		arrayOf(c.versions, func(b *strings.Builder, v int32) { b.WriteString(strconv.FormatInt(int64(v), 10)) }),
		textArray(c.topics), textArray(c.keys),
		arrayOf(c.payloads, func(b *strings.Builder, v []byte) { b.WriteString(`"\\x` + hex.EncodeToString(v) + `"`) }),
		textArray(c.contentTypes),
		arrayOf(c.headers, func(b *strings.Builder, v *string) {
			if v == nil {
				b.WriteString("NULL")
				return
			}
			writeElement(b, *v)
		}),
		arrayOf(c.occurred, func(b *strings.Builder, v time.Time) { b.WriteString(`"` + v.UTC().Format(time.RFC3339Nano) + `"`) }),
	}
}

func textArray(values []string) string { return arrayOf(values, writeElement) }

func arrayOf[T any](values []T, write func(*strings.Builder, T)) string {
	var b strings.Builder
	b.WriteByte('{')
	for i, value := range values {
		if i > 0 {
			b.WriteByte(',')
		}
		write(&b, value)
	}
	b.WriteByte('}')
	return b.String()
}

var elementEscaper = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

func writeElement(b *strings.Builder, text string) {
	b.WriteByte('"')
	_, _ = elementEscaper.WriteString(b, text)
	b.WriteByte('"')
}

func hexOf(text string) string { return hex.EncodeToString([]byte(text)) }

// bytesOf is the inverse of hexOf; what is not hexadecimal comes back as it is.
func bytesOf(text string) string {
	decoded, err := hex.DecodeString(text)
	if err != nil {
		return hexPrefix + text
	}
	return string(decoded)
}
