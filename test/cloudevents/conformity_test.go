package cloudevents_test

import (
	"bytes"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	kafka "github.com/cloudevents/sdk-go/protocol/kafka_sarama/v2"
	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/event"

	"github.com/waybillhq/waybill"
)

func full() waybill.Event {
	return waybill.Event{
		ID: "e-1", Type: "OrderPaid", SchemaVersion: 2, Topic: "orders", Key: "customer-7",
		TenantID: "北京 1", AggregateType: "order", AggregateID: "O 1001", AggregateVersion: 1 << 40,
		OccurredAt: time.Date(2026, 3, 1, 12, 30, 45, 123456000, time.UTC),
		Data:       []byte(` {"total":1.10}`), ContentType: "application/json",
		Source: "https://shop.example/orders?region=eu#x", CorrelationID: "100%25", CausationID: "e-0",
		TraceParent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
		Headers:     map[string]string{"region": "eu"},
	}
}

// What we write is a valid CloudEvent to the SDK, with the same attributes and
// data.
func TestSDKReadsOurRecords(t *testing.T) {
	with := func(change func(*waybill.Event)) waybill.Event {
		e := full()
		change(&e)
		return e
	}
	for name, e := range map[string]waybill.Event{
		"full":              full(),
		"minimal":           {ID: "1", Type: "T", SchemaVersion: 1, Topic: "t", Key: "k", OccurredAt: time.Unix(0, 0).UTC(), ContentType: "text/plain"},
		"binary data":       with(func(e *waybill.Event) { e.ContentType, e.Data = "application/octet-stream", []byte{0, 0xff, '\n'} }),
		"no source":         with(func(e *waybill.Event) { e.Source = "" }),
		"source of words":   with(func(e *waybill.Event) { e.Source = "order service" }),
		"source with colon": with(func(e *waybill.Event) { e.Source = "1:2" }),
		"source not a URI":  with(func(e *waybill.Event) { e.Source = "%zz\\" }),
		"a URN for source":  with(func(e *waybill.Event) { e.Source = "urn:shop:orders" }),
		"skip marker":       func() waybill.Event { e := full(); return e.SkipMarker() }(),
	} {
		t.Run(name, func(t *testing.T) {
			r, err := waybill.Encode(waybill.FormatCloudEvents, &e)
			if err != nil {
				t.Fatal(err)
			}
			message := kafka.NewMessageFromConsumerMessage(consumed(&r))
			if message.ReadEncoding() != binding.EncodingBinary {
				t.Fatalf("the SDK sees %v, want binary mode", message.ReadEncoding())
			}
			got, err := binding.ToEvent(t.Context(), message)
			if err != nil {
				t.Fatal(err)
			}
			if err := got.Validate(); err != nil {
				t.Errorf("not a valid CloudEvent: %v", err)
			}
			if got.SpecVersion() != "1.0" || got.ID() != e.ID || got.Type() != e.Type || got.Subject() != e.AggregateID ||
				!got.Time().Equal(e.OccurredAt) || got.DataContentType() != e.ContentType {
				t.Errorf("attributes differ: %v", got)
			}
			if carried, ok := r.Header("waybill-source"); ok {
				if string(carried) != e.Source {
					t.Errorf("waybill-source %q, want %q", carried, e.Source)
				}
			} else if got.Source() != e.Source {
				t.Errorf("source %q, want %q", got.Source(), e.Source)
			}
			if !bytes.Equal(got.Data(), e.Data) {
				t.Errorf("data %q, want %q", got.Data(), e.Data)
			}
			want := map[string]string{
				"tenantid": e.TenantID, "aggregatetype": e.AggregateType, "aggregateversion": number(e.AggregateVersion),
				"schemaversion": number(int64(e.SchemaVersion)), "correlationid": e.CorrelationID, "causationid": e.CausationID, "traceparent": e.TraceParent,
			}
			for name, value := range got.Extensions() {
				if strings.HasPrefix(name, "kafka") {
					continue // the SDK adds where it read the message
				}
				if value != want[name] {
					t.Errorf("extension %s is %q, want %q", name, value, want[name])
				}
				delete(want, name)
			}
			for name, value := range want {
				if value != "" {
					t.Errorf("extension %s is missing, want %q", name, value)
				}
			}
		})
	}
}

// What the SDK writes in binary mode is an event to us, with the same
// attributes and data; extensions that we do not know become headers.
func TestWeReadTheSDKsRecords(t *testing.T) {
	ce := event.New("1.0")
	ce.SetID("sdk é 1")
	ce.SetType("com.example.paid")
	ce.SetSource("/shop/orders")
	ce.SetSubject("O 1001")
	ce.SetTime(time.Date(2026, 3, 1, 14, 30, 45, 123456000, time.FixedZone("", 7200)))
	ce.SetDataSchema("https://schema.example/1")
	ce.SetExtension("aggregateversion", 7)
	ce.SetExtension("tenantid", "100% \"北京\"")
	ce.SetExtension("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	ce.SetExtension("flag", true)
	if err := ce.SetData("application/json", []byte(`{"n":12345678901234567890}`)); err != nil {
		t.Fatal(err)
	}
	r := produced(t, &ce)
	got, err := waybill.Decode(&r)
	if err != nil {
		t.Fatal(err)
	}
	if got.ID != "sdk é 1" || got.Type != "com.example.paid" || got.Source != "/shop/orders" || got.AggregateID != "O 1001" || got.AggregateVersion != 7 ||
		!got.OccurredAt.Equal(ce.Time()) || got.TenantID != "100% \"北京\"" || got.ContentType != "application/json" || got.TraceParent == "" {
		t.Errorf("got %+v", got)
	}
	if string(got.Data) != `{"n":12345678901234567890}` {
		t.Errorf("data %s", got.Data)
	}
	if got.Headers["ce_flag"] != "true" || got.Headers["ce_dataschema"] != "https://schema.example/1" || len(got.Headers) != 2 {
		t.Errorf("headers %v", got.Headers)
	}
}

// An event that passed through the SDK, read and written again, is the same to
// us: nothing that matters stands outside of its attributes.
func TestEventSurvivesTheSDK(t *testing.T) {
	e := full()
	e.Headers = nil
	out, err := waybill.Encode(waybill.FormatCloudEvents, &e)
	if err != nil {
		t.Fatal(err)
	}
	ce, err := binding.ToEvent(t.Context(), kafka.NewMessageFromConsumerMessage(consumed(&out)))
	if err != nil {
		t.Fatal(err)
	}
	for name := range ce.Extensions() {
		if strings.HasPrefix(name, "kafka") {
			ce.SetExtension(name, nil)
		}
	}
	r := produced(t, ce)
	r.Topic, r.Key = out.Topic, out.Key
	got, err := waybill.Decode(&r)
	if err != nil {
		t.Fatal(err)
	}
	a, _ := waybill.Encode(waybill.FormatEnvelope, &e)
	b, _ := waybill.Encode(waybill.FormatEnvelope, &got)
	if !bytes.Equal(a.Value, b.Value) || got.Key != e.Key || got.TraceParent != e.TraceParent || len(got.Headers) != 0 {
		t.Errorf("got %+v\nwant %+v", got, e)
	}
}

func consumed(r *waybill.Record) *sarama.ConsumerMessage {
	message := &sarama.ConsumerMessage{Topic: r.Topic, Key: []byte(r.Key), Value: r.Value}
	for _, h := range r.Headers {
		message.Headers = append(message.Headers, &sarama.RecordHeader{Key: []byte(h.Key), Value: h.Value})
	}
	return message
}

func produced(t *testing.T, ce *event.Event) waybill.Record {
	t.Helper()
	var message sarama.ProducerMessage
	ctx := binding.WithForceBinary(t.Context())
	if err := kafka.WriteProducerMessage(ctx, binding.ToMessage(ce), &message); err != nil {
		t.Fatal(err)
	}
	value, err := message.Value.Encode()
	if err != nil {
		t.Fatal(err)
	}
	r := waybill.Record{Topic: "orders", Key: "k", Value: value}
	for _, h := range message.Headers {
		r.Headers = append(r.Headers, waybill.Header{Key: string(h.Key), Value: h.Value})
	}
	return r
}

func number(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}
