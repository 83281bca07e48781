// Package broker is the contract between waybill and a message broker:
// [Publisher] on the relay's side, [Subscriber] and [Subscription] on the
// consumer's, and the classes of error that steer retries.
//
// An adapter lives in a package of its own below this one and is proved by
// [github.com/waybillhq/waybill/broker/brokertest]. The package membroker is
// an in-memory broker that passes the same suite.
package broker
