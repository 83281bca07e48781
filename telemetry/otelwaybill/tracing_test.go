package otelwaybill_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker/membroker"
	"github.com/waybillhq/waybill/inbox"
	"github.com/waybillhq/waybill/outbox"
	"github.com/waybillhq/waybill/relay"
	"github.com/waybillhq/waybill/store/memstore"
	"github.com/waybillhq/waybill/telemetry/otelwaybill"
)

func TestOneTraceFromTheTransactionToTheHandler(t *testing.T) {
	for _, format := range []waybill.Format{waybill.FormatEnvelope, waybill.FormatCloudEvents, waybill.FormatRaw} {
		t.Run(string(format), func(t *testing.T) {
			exporter := tracetest.NewInMemoryExporter()
			provider := sdk.NewTracerProvider(sdk.WithSyncer(exporter))
			tracing := otelwaybill.New(provider)
			quiet := slog.New(slog.DiscardHandler)
			st, b := memstore.New(nil), membroker.New("orders")

			// The business transaction.
			ctx, business := provider.Tracer("shop").Start(t.Context(), "pay order")
			writer := outbox.NewWriter(st, &outbox.Config{Stamp: tracing.Stamp})
			tx, err := st.Begin(ctx)
			if err != nil {
				t.Fatal(err)
			}
			event := waybill.Event{ID: "e1", Type: "OrderPaid", Topic: "orders", AggregateType: "order", AggregateID: "o1", Data: []byte("{}")}
			if err := writer.Append(ctx, tx, event); err != nil {
				t.Fatal(err)
			}
			if err := tx.Commit(ctx); err != nil {
				t.Fatal(err)
			}
			business.End()

			// The relay, whose first attempt is refused.
			b.Refuse("e1", 1, errors.New("not now"))
			r, err := relay.New(st, b, &relay.Config{
				Logger: quiet, Events: tracing.Relay(relay.Events{}), BackoffMin: time.Millisecond, BackoffMax: time.Millisecond,
				Default: relay.TopicConfig{Format: format},
			})
			if err != nil {
				t.Fatal(err)
			}
			// The consumer.
			inside := make(chan trace.SpanContext, 1)
			handler := func(ctx context.Context, _ *memstore.Tx, _ waybill.Event) error {
				inside <- trace.SpanContextFromContext(ctx)
				return nil
			}
			p, err := inbox.New(st, b.Connect(), otelwaybill.Handler(tracing, "billing", handler), &inbox.Config{
				Group: "billing", Topics: []string{"orders"}, Logger: quiet,
			})
			if err != nil {
				t.Fatal(err)
			}
			run, stop := context.WithCancel(t.Context())
			done := make(chan error, 2)
			go func() { done <- r.Run(run) }()
			go func() { done <- p.Run(run) }()
			seen := <-inside
			stop()
			for range 2 {
				if err := <-done; err != nil {
					t.Error(err)
				}
			}

			want := business.SpanContext()
			if seen.TraceID() != want.TraceID() {
				t.Errorf("the handler ran in trace %s, want %s", seen.TraceID(), want.TraceID())
			}
			got := make(map[string]int)
			for _, span := range exporter.GetSpans() {
				if span.SpanContext.TraceID() != want.TraceID() {
					t.Errorf("span %q is in trace %s, want %s", span.Name, span.SpanContext.TraceID(), want.TraceID())
				}
				if span.Name != "pay order" && span.Parent.SpanID() != want.SpanID() {
					t.Errorf("span %q has parent %s, want %s", span.Name, span.Parent.SpanID(), want.SpanID())
				}
				got[span.Name+"/"+span.Status.Code.String()]++
			}
			for _, name := range []string{"pay order/Unset", "publish orders/Error", "publish orders/Unset", "process orders/Unset"} {
				if got[name] != 1 {
					t.Errorf("spans %v, want one %q", got, name)
				}
			}
		})
	}
}

func TestStampKeepsWhatTheProducerGave(t *testing.T) {
	const given = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	provider := sdk.NewTracerProvider()
	ctx, span := provider.Tracer("x").Start(t.Context(), "x")
	defer span.End()
	event := waybill.Event{TraceParent: given}
	otelwaybill.New(provider).Stamp(ctx, &event)
	if event.TraceParent != given {
		t.Errorf("traceparent %q, want %q", event.TraceParent, given)
	}
	event = waybill.Event{}
	otelwaybill.New(provider).Stamp(t.Context(), &event)
	if event.TraceParent != "" {
		t.Errorf("traceparent %q without a span, want none", event.TraceParent)
	}
}

func TestHandlerThatPanicsEndsItsSpan(t *testing.T) {
	exporter := tracetest.NewInMemoryExporter()
	tracing := otelwaybill.New(sdk.NewTracerProvider(sdk.WithSyncer(exporter)))
	handler := otelwaybill.Handler(tracing, "g", func(context.Context, int, waybill.Event) error { panic("oh") })
	func() {
		defer func() { _ = recover() }()
		_ = handler(t.Context(), 0, waybill.Event{ID: "e", Topic: "orders"})
	}()
	spans := exporter.GetSpans()
	if len(spans) != 1 || spans[0].Status.Description != "panic" {
		t.Errorf("spans %+v, want one that ended in a panic", spans)
	}
}
