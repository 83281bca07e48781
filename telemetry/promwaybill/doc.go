// Package promwaybill counts what relays and consumers do, for Prometheus.
//
// [NewRelay] and [NewConsumer] make collectors that are fed by the hooks of the
// part they watch; [NewOutbox] makes one that asks the database when it is
// scraped, so it tells of the queue even where no relay is alive:
//
//	metrics := promwaybill.NewConsumer("inventory", nil)
//	registry.MustRegister(metrics)
//	config := &inbox.Config{Group: "inventory", Events: metrics.Events(inbox.Events{})}
//
// Labels are bounded: topics up to [Config.MaxTopics], then "other"; never keys,
// ids or texts of errors. All names begin with "waybill_".
package promwaybill
