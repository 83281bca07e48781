package kafka

import (
	"math/bits"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybillhq/waybill"
)

// headerEventID carries the event's id where no other header does.
const headerEventID = "waybill-event-id"

// eventIDHeaders are looked at in this order; the others are those of the wire
// formats.
var eventIDHeaders = []string{headerEventID, "id", "ce_id"}

// encode returns the library's records, which share the bytes of values and
// headers with those that it is given.
func encode(records []waybill.Record) []*kgo.Record {
	keys, headers := 0, 0
	for i := range records {
		keys += len(records[i].Key)
		headers += len(records[i].Headers) + 1
	}
	text := make([]byte, 0, keys)
	all := make([]kgo.Record, len(records))
	out := make([]*kgo.Record, len(records))
	names := make([]kgo.RecordHeader, 0, headers)
	for i := range records {
		r := &records[i]
		from, first := len(text), len(names)
		text = append(text, r.Key...)
		for _, h := range r.Headers {
			names = append(names, kgo.RecordHeader(h))
		}
		if !carriesID(r) {
			names = append(names, kgo.RecordHeader{Key: headerEventID, Value: []byte(r.EventID)})
		}
		all[i] = kgo.Record{
			// An empty key is a key: without one, records would be spread.
			Topic: r.Topic, Key: text[from:len(text):len(text)], Value: r.Value,
			Headers: names[first:len(names):len(names)],
		}
		out[i] = &all[i]
	}
	return out
}

// carriesID reports whether decode finds the event's id without a header of ours.
func carriesID(r *waybill.Record) bool {
	for _, name := range eventIDHeaders {
		if value, ok := r.Header(name); ok {
			return string(value) == r.EventID
		}
	}
	return r.EventID == ""
}

// decode is the inverse of encode. The record belongs to the caller afterwards:
// its slices are cut so that appending to one does not reach another.
func decode(k *kgo.Record) waybill.Record {
	r := waybill.Record{Topic: k.Topic, Key: string(k.Key), Value: k.Value[:len(k.Value):len(k.Value)]}
	if len(k.Headers) > 0 {
		r.Headers = make([]waybill.Header, 0, len(k.Headers))
	}
	for _, h := range k.Headers {
		r.Headers = append(r.Headers, waybill.Header{Key: h.Key, Value: h.Value[:len(h.Value):len(h.Value)]})
	}
	for _, name := range eventIDHeaders {
		if value, ok := r.Header(name); ok {
			r.EventID = string(value)
			break
		}
	}
	if len(r.Headers) > 0 && r.Headers[len(r.Headers)-1].Key == headerEventID {
		r.Headers = r.Headers[:len(r.Headers)-1]
	}
	return r
}

// batchOverhead is what a batch has beside its records, its length included.
const batchOverhead = 65

// recordSize returns the bytes of a batch that holds the record alone, before
// compression.
func recordSize(r *waybill.Record) int {
	n := 3 // attributes, and the differences of time and offset to the batch's first
	n += fieldSize(len(r.Key)) + fieldSize(len(r.Value)) + varintSize(len(r.Headers)+1)
	for _, h := range r.Headers {
		n += fieldSize(len(h.Key)) + fieldSize(len(h.Value))
	}
	if !carriesID(r) {
		n += fieldSize(len(headerEventID)) + fieldSize(len(r.EventID))
	}
	return batchOverhead + fieldSize(n)
}

func fieldSize(n int) int { return varintSize(n) + n }

// varintSize is that of a zigzag varint of a number that is not negative.
func varintSize(n int) int { return (bits.Len64(uint64(n)<<1|1) + 6) / 7 }
