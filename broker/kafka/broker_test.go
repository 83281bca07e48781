package kafka_test

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

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
