package otelwaybill

import (
	"context"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/inbox"
	"github.com/waybillhq/waybill/relay"
)

// Tracing makes spans with one tracer provider.
type Tracing struct{ tracer trace.Tracer }

// New returns a Tracing; a nil provider means the global one.
func New(provider trace.TracerProvider) *Tracing {
	if provider == nil {
		provider = otel.GetTracerProvider()
	}
	return &Tracing{tracer: provider.Tracer("github.com/waybillhq/waybill")}
}

var w3c propagation.TraceContext

const traceParent = "traceparent"

// Stamp gives the event the trace context of ctx, unless it has one. It is a
// Stamp for outbox.Config.
func (t *Tracing) Stamp(ctx context.Context, event *waybill.Event) {
	if event.TraceParent != "" {
		return
	}
	carrier := propagation.MapCarrier{}
	w3c.Inject(ctx, carrier)
	event.TraceParent = carrier[traceParent]
}

// parent returns ctx with the event's span as the remote parent.
func parent(ctx context.Context, traceparent string) context.Context {
	if traceparent == "" {
		return ctx
	}
	return w3c.Extract(ctx, propagation.MapCarrier{traceParent: traceparent})
}

// Relay returns the hooks with a span for each attempt to publish an event: a
// child of the span that appended it. An event without a trace context gets none.
func (t *Tracing) Relay(events relay.Events) relay.Events {
	published, failed := events.Published, events.Failed
	events.Published = func(info relay.PublishedInfo) {
		t.publishSpan(info.EventInfo, info.Took, nil, attribute.Float64("waybill.age_s", info.Age.Seconds()))
		if published != nil {
			published(info)
		}
	}
	events.Failed = func(info relay.FailedInfo) {
		t.publishSpan(info.EventInfo, 0, info.Err, attribute.String("waybill.error_class", info.Class), attribute.Bool("waybill.dead", info.Dead))
		if failed != nil {
			failed(info)
		}
	}
	return events
}

func (t *Tracing) publishSpan(info relay.EventInfo, took time.Duration, err error, more ...attribute.KeyValue) {
	if info.TraceParent == "" {
		return
	}
	end := now()
	_, span := t.tracer.Start(parent(context.Background(), info.TraceParent), "publish "+info.Topic,
		trace.WithSpanKind(trace.SpanKindProducer), trace.WithTimestamp(end.Add(-took)),
		trace.WithAttributes(append(more,
			attribute.String("messaging.operation.type", "send"),
			attribute.String("messaging.destination.name", info.Topic),
			attribute.String("messaging.message.id", info.EventID),
			attribute.String("waybill.event_type", info.Type),
			attribute.Int("waybill.attempt", info.Attempt),
		)...))
	finish(span, err, trace.WithTimestamp(end))
}

// Handler wraps a consumer's handler in a span for each run: a child of the
// span that appended the event, and the parent of whatever the handler does.
func Handler[TX any](t *Tracing, group string, handler inbox.Handler[TX]) inbox.Handler[TX] {
	return func(ctx context.Context, tx TX, event waybill.Event) error {
		ctx, span := t.tracer.Start(parent(ctx, event.TraceParent), "process "+event.Topic,
			trace.WithSpanKind(trace.SpanKindConsumer),
			trace.WithAttributes(
				attribute.String("messaging.operation.type", "process"),
				attribute.String("messaging.consumer.group.name", group),
				attribute.String("messaging.destination.name", event.Topic),
				attribute.String("messaging.message.id", event.ID),
				attribute.String("waybill.event_type", event.Type),
			))
		ended := false
		defer func() {
			if !ended { // the handler panics: the processor deals with it, the span only tells
				span.SetStatus(codes.Error, "panic")
				span.End()
			}
		}()
		err := handler(ctx, tx, event)
		ended = true
		finish(span, err)
		return err
	}
}

func finish(span trace.Span, err error, options ...trace.SpanEndOption) {
	if err != nil {
		span.RecordError(err)
		span.SetStatus(codes.Error, err.Error())
	}
	span.End(options...)
}
