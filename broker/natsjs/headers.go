package natsjs

import (
	"encoding/hex"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/waybillhq/waybill"
)

// Headers of our own. The values of the first two are percent-encoded.
const (
	headerEventID = "Waybill-Event-Id"
	headerKey     = "Waybill-Key"
	// headerEncoded lists, once each, the names of other headers whose values had
	// to be percent-encoded because a line of text cannot carry them.
	headerEncoded = "Waybill-Encoded"
)

// CloudEvents attributes are named "ce_id" in records and, as the NATS binding
// of CloudEvents wants it, "ce-id" here, with percent-encoded values.
const (
	recordCloudPrefix = "ce_"
	natsCloudPrefix   = "ce-"
)

// encodeHeaders returns the headers that carry a record's headers, id and key.
func encodeHeaders(record *waybill.Record) nats.Header {
	header := make(nats.Header, len(record.Headers)+2)
	header[headerEventID] = []string{percentEncode(record.EventID)}
	header[headerKey] = []string{percentEncode(record.Key)}
	var encoded map[string]bool
	for i := range record.Headers {
		name := record.Headers[i].Key
		if strings.HasPrefix(name, recordCloudPrefix) {
			name = natsCloudPrefix + encodeNameBytes(name[len(recordCloudPrefix):])
			header[name] = append(header[name], percentEncode(string(record.Headers[i].Value)))
			continue
		}
		name = encodeName(name)
		if !plain(record.Headers[i].Value) {
			if encoded == nil {
				encoded = make(map[string]bool)
			}
			encoded[name] = true
		}
		header[name] = append(header[name], string(record.Headers[i].Value))
	}
	for name := range encoded {
		for i, value := range header[name] {
			header[name][i] = percentEncode(value)
		}
		header[headerEncoded] = append(header[headerEncoded], name)
	}
	return header
}

// decodeHeaders is the inverse of encodeHeaders. Messages of other senders have
// no id and key; a CloudEvents id serves as the former.
func decodeHeaders(header nats.Header, record *waybill.Record) {
	record.EventID = percentDecode(header.Get(headerEventID))
	record.Key = percentDecode(header.Get(headerKey))
	encoded := header[headerEncoded]
	record.Headers = make([]waybill.Header, 0, len(header))
	for name, values := range header {
		switch name {
		case headerEventID, headerKey, headerEncoded:
			continue
		}
		cloud := strings.HasPrefix(name, natsCloudPrefix)
		decode := cloud || slices.Contains(encoded, name)
		recordName := percentDecode(name)
		if cloud {
			recordName = recordCloudPrefix + percentDecode(name[len(natsCloudPrefix):])
		}
		for _, value := range values {
			if decode {
				value = percentDecode(value)
			}
			record.Headers = append(record.Headers, waybill.Header{Key: recordName, Value: []byte(value)})
		}
	}
	if record.EventID == "" {
		record.EventID = percentDecode(header.Get(natsCloudPrefix + "id"))
	}
}

// encodeName makes a name fit for a header line, and keeps it from meaning
// something to the server, to CloudEvents or to this file.
func encodeName(name string) string {
	out := encodeNameBytes(name)
	lower := strings.ToLower(out)
	if out == headerEventID || out == headerKey || out == headerEncoded ||
		strings.HasPrefix(lower, "nats-") || strings.HasPrefix(out, natsCloudPrefix) || lower == "status" || lower == "description" {
		return "%" + hex.EncodeToString([]byte{out[0]}) + out[1:]
	}
	return out
}

func encodeNameBytes(name string) string {
	return escape(name, func(c byte) bool { return c <= ' ' || c >= 0x7f || c == ':' || c == '%' })
}

// plain reports whether a header line carries the value unchanged.
func plain(value []byte) bool {
	for _, c := range value {
		if c < ' ' || c == 0x7f {
			return false
		}
	}
	n := len(value)
	return n == 0 || value[0] != ' ' && value[n-1] != ' '
}

// percentEncode follows the CloudEvents bindings for HTTP and NATS: what is not
// visible ASCII, space, '"' and '%' are encoded byte by byte.
func percentEncode(value string) string {
	return escape(value, func(c byte) bool { return c <= ' ' || c >= 0x7f || c == '"' || c == '%' })
}

func escape(value string, special func(byte) bool) string {
	n := 0
	for i := range len(value) {
		if special(value[i]) {
			n++
		}
	}
	if n == 0 {
		return value
	}
	const digits = "0123456789ABCDEF"
	out := make([]byte, 0, len(value)+2*n)
	for i := range len(value) {
		if c := value[i]; special(c) {
			out = append(out, '%', digits[c>>4], digits[c&15])
		} else {
			out = append(out, c)
		}
	}
	return string(out)
}

// percentDecode leaves alone what is not an encoded byte.
func percentDecode(value string) string {
	if !strings.Contains(value, "%") {
		return value
	}
	out := make([]byte, 0, len(value))
	for i := 0; i < len(value); i++ {
		if value[i] == '%' && i+2 < len(value) {
			if b, err := hex.DecodeString(value[i+1 : i+3]); err == nil {
				out = append(out, b[0])
				i += 2
				continue
			}
		}
		out = append(out, value[i])
	}
	return string(out)
}

// headerSize is the length of the header block on the wire.
func headerSize(header nats.Header) int {
	size := len("NATS/1.0\r\n") + len("\r\n")
	for name, values := range header {
		for _, value := range values {
			size += len(name) + len(": ") + len(value) + len("\r\n")
		}
	}
	return size
}
