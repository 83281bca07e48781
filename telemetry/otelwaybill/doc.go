// Package otelwaybill makes one OpenTelemetry trace of one event: from the span
// in which the business transaction appended it, through its publication by a
// relay, to its handling by each consumer, hours and processes apart.
//
// The thread is the event's TraceParent, in the form of W3C Trace Context. A
// writer with [Tracing.Stamp] in its config takes it from the context of the
// append; it is stored with the event and travels in the header "traceparent"
// of every wire format. [Tracing.Relay] and [Handler] continue from there.
//
// The package uses the API of OpenTelemetry only. Which spans are sampled, and
// where they go, is the program's own choice of SDK.
package otelwaybill
