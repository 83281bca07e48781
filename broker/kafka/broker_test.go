package kafka_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker/brokertest"
	"github.com/waybillhq/waybill/broker/kafka"
	"github.com/waybillhq/waybill/internal/testenv"
)

const fakePackage = "github.com/twmb/franz-go/pkg/kfake"

// startFake runs a cluster in this process.
func startFake(t testing.TB, options ...kfake.Opt) (*kfake.Cluster, []string) {
	t.Helper()
	cluster, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1)}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	return cluster, cluster.ListenAddrs()
}

func open(t testing.TB, config *kafka.Config) *kafka.Broker {
	t.Helper()
	b, err := kafka.Open(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

func harness(brokers []string, replicas int) brokertest.Harness {
	between := newWire()
	return brokertest.Harness{
		Open: func(t testing.TB) brokertest.Client {
			b := open(t, &kafka.Config{Brokers: brokers, Replicas: replicas, Dial: between.dial, SessionTimeout: 6 * time.Second})
			return brokertest.Client{Publisher: b, Subscriber: b, Admin: b, Checker: b}
		},
		TooLarge: kafka.DefaultMaxRecordBytes + 1,
		Stop:     between.stop,
		Start:    between.start,
		Freeze:   between.freeze,

		DotIsUnderscore: true,
		ServerPackages:  []string{fakePackage},
	}
}

func TestConformance(t *testing.T) {
	_, brokers := startFake(t)
	brokertest.Run(t, harness(brokers, 1))
}

func TestConformanceOfKafka4(t *testing.T) {
	brokertest.Run(t, harness([]string{testenv.Kafka4(t)}, 1))
}

func BenchmarkFake(b *testing.B) {
	_, brokers := startFake(b)
	brokertest.Bench(b, harness(brokers, 1))
}

func BenchmarkKafka4(b *testing.B) {
	brokertest.Bench(b, harness([]string{testenv.Kafka4(b)}, 1))
}

// BenchmarkShapesOfCalls publishes as a relay does, in four calls at a time.
func BenchmarkShapesOfCalls(b *testing.B) {
	const callers, size = 4, 500
	for _, shape := range []struct {
		name string
		keys int // of a call
	}{{"500Keys", 500}, {"100Keys", 100}, {"1Key", 1}} {
		b.Run(shape.name, func(b *testing.B) {
			client := open(b, &kafka.Config{Brokers: []string{testenv.Kafka4(b)}})
			topic := newTopic(b, client, 12)
			b.ResetTimer()
			var all sync.WaitGroup
			for caller := range callers {
				all.Go(func() {
					for sent := 0; sent < b.N/callers; sent += size {
						batch := make([]waybill.Record, min(size, b.N/callers-sent))
						for i := range batch {
							batch[i] = record(topic, fmt.Sprintf("%d-%d", caller, i%shape.keys), "event")
							batch[i].Value = make([]byte, 250)
						}
						publishAll(b, client, batch...)
					}
				})
			}
			all.Wait()
		})
	}
}
