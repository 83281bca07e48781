// Package cloudevents has no code but tests: they hold waybill's CloudEvents
// format against the official SDK's Kafka binding, in both directions.
package cloudevents
