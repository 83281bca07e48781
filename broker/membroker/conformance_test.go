package membroker_test

import (
	"context"
	"testing"

	"github.com/waybillhq/waybill/broker"
	"github.com/waybillhq/waybill/broker/brokertest"
	"github.com/waybillhq/waybill/broker/membroker"

	"github.com/waybillhq/waybill"
)

const tooLarge = membroker.DefaultMaxRecordBytes + 1

func harness(subscriber func(*membroker.Broker) broker.Subscriber) brokertest.Harness {
	server := membroker.New()
	return brokertest.Harness{
		Open: func(testing.TB) brokertest.Client {
			client := server.Connect()
			return brokertest.Client{Publisher: client, Subscriber: subscriber(client), Admin: client, Checker: client}
		},
		TooLarge: tooLarge,
		Stop:     func(testing.TB) { server.Outage(true) },
		Start:    func(testing.TB) { server.Outage(false) },
		Freeze: func(testing.TB) func() {
			server.SetFault(func(context.Context, waybill.Record) membroker.Verdict {
				return membroker.Verdict{Silent: true}
			})
			return func() { server.SetFault(nil) }
		},
	}
}

func shared(b *membroker.Broker) broker.Subscriber   { return b }
func unshared(b *membroker.Broker) broker.Subscriber { return b.Unshared() }

func TestConformance(t *testing.T)         { brokertest.Run(t, harness(shared)) }
func TestConformanceUnshared(t *testing.T) { brokertest.Run(t, harness(unshared)) }

func BenchmarkBroker(b *testing.B) { brokertest.Bench(b, harness(shared)) }
