package natsjs

import (
	"bytes"
	"reflect"
	"slices"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/waybillhq/waybill"
)

// onTheWire writes a header as the client library does, and reads it back.
func onTheWire(t testing.TB, header nats.Header) (nats.Header, int) {
	t.Helper()
	var b bytes.Buffer
	b.WriteString("NATS/1.0\r\n")
	for name, values := range header {
		for _, value := range values {
			b.WriteString(name + ": " + value + "\r\n")
		}
	}
	b.WriteString("\r\n")
	size := b.Len()
	out, err := nats.DecodeHeadersMsg(b.Bytes())
	if err != nil {
		t.Fatalf("%q: %v", b.String(), err)
	}
	return out, size
}

func TestHeadersFollowTheCloudEventsBinding(t *testing.T) {
	record := waybill.Record{EventID: "E 1", Key: "k", Headers: []waybill.Header{
		{Key: "ce_id", Value: []byte("E 1")}, {Key: "ce_subject", Value: []byte("Grüße 100%")}, {Key: "content-type", Value: []byte("application/json")},
	}}
	got := encodeHeaders(&record)
	want := nats.Header{
		"Waybill-Event-Id": {"E%201"}, "Waybill-Key": {"k"},
		"ce-id": {"E%201"}, "ce-subject": {"Gr%C3%BC%C3%9Fe%20100%25"}, "content-type": {"application/json"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestAnEventOfAnotherSenderHasItsCloudEventsID(t *testing.T) {
	var record waybill.Record
	decodeHeaders(nats.Header{"ce-id": {"A%20234"}, "ce-type": {"OrderPaid"}}, &record)
	if record.EventID != "A 234" {
		t.Errorf("got event id %q, want %q", record.EventID, "A 234")
	}
	if value, _ := record.Header("ce_type"); string(value) != "OrderPaid" {
		t.Errorf("got ce_type %q, want OrderPaid", value)
	}
}

// FuzzHeaders sends two headers, an id and a key through the wire's form.
func FuzzHeaders(f *testing.F) {
	f.Add("id", "key", "name", []byte("value"), "name", []byte(" other "))
	f.Add("a/b%2F", " key ", "ce_id", []byte("100%"), "ce-id", []byte("\r\nEvil: yes"))
	f.Add("", "", "Nats-Msg-Id", []byte("x"), "waybill-key", []byte{})
	f.Add("", "", "Waybill-Key", []byte("\t"), "Status", []byte("503"))
	f.Add("", "", "a:b c", []byte("\x00\xff"), "ü", []byte("ü"))
	f.Fuzz(func(t *testing.T, id, key, name1 string, value1 []byte, name2 string, value2 []byte) {
		if name1 == "" || name2 == "" {
			t.Skip("no header has an empty name")
		}
		sent := waybill.Record{EventID: id, Key: key, Headers: []waybill.Header{{Key: name1, Value: value1}, {Key: name2, Value: value2}}}
		encoded := encodeHeaders(&sent)
		for name := range encoded {
			if len(name) > 5 && bytes.EqualFold([]byte(name[:5]), []byte("nats-")) {
				t.Errorf("header %q means something to the server", name)
			}
		}
		wire, size := onTheWire(t, encoded)
		if got := headerSize(encoded); got != size {
			t.Errorf("counted %d bytes of headers, want %d", got, size)
		}
		var got waybill.Record
		decodeHeaders(wire, &got)
		if id == "" && (name1 == "ce_id" || name2 == "ce_id") {
			got.EventID = ""
		}
		if got.EventID != id || got.Key != key || !slices.Equal(list(got), list(sent)) {
			t.Errorf("got %q %q %q, want %q %q %q", got.EventID, got.Key, list(got), id, key, list(sent))
		}
	})
}

func list(record waybill.Record) []string {
	var out []string
	for _, h := range record.Headers {
		out = append(out, h.Key+"="+string(h.Value))
	}
	slices.Sort(out)
	return out
}
