package kafka_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/waybillhq/waybill/broker/kafka"
)

func TestURLIsReadOrRefusedWithoutItsPassword(t *testing.T) {
	for _, test := range []struct {
		name, url string
		brokers   []string
		sasl      *kafka.SASL
		tls       bool
		fails     string
	}{
		{name: "one", url: "kafka://h:9092", brokers: []string{"h:9092"}},
		{name: "two, tls", url: "kafka://h:9092,i:9093?tls=true&compression=zstd", brokers: []string{"h:9092", "i:9093"}, tls: true},
		{name: "user", url: "kafka://u:s%2Fcret@h:9092?mechanism=PLAIN", brokers: []string{"h:9092"}, sasl: &kafka.SASL{Mechanism: kafka.Plain, User: "u", Password: "s/cret"}},
		{name: "other scheme", url: "nats://u:s3cret@h:1", fails: "kafka://"},
		{name: "no host", url: "kafka://", fails: "hosts"},
		{name: "path", url: "kafka://u:s3cret@h:1/topic", fails: "hosts"},
		{name: "bad", url: "kafka://u:s3cret@h:x y", fails: "not a URL"},
		{name: "unknown parameter", url: "kafka://u:s3cret@h:1?acks=0", fails: `"acks"`},
		{name: "mechanism without user", url: "kafka://h:1?mechanism=PLAIN", fails: `"mechanism"`},
		{name: "unknown mechanism", url: "kafka://u:s3cret@h:1?mechanism=GSSAPI", fails: "GSSAPI"},
		{name: "unknown codec", url: "kafka://h:1?compression=rar", fails: "rar"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, err := kafka.ParseURL(test.url)
			if test.fails != "" {
				if err == nil || !strings.Contains(err.Error(), test.fails) || strings.Contains(err.Error(), "s3cret") {
					t.Fatalf("got error %v, want one that says %s and no password", err, test.fails)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(c.Brokers, test.brokers) || !reflect.DeepEqual(c.SASL, test.sasl) || (c.TLS != nil) != test.tls {
				t.Errorf("got %v, %+v, TLS %v", c.Brokers, c.SASL, c.TLS != nil)
			}
		})
	}
}

func TestUnfitConfigIsRefused(t *testing.T) {
	for name, config := range map[string]*kafka.Config{
		"nil":          nil,
		"no brokers":   {},
		"empty broker": {Brokers: []string{""}},
		"tiny records": {Brokers: []string{"h:1"}, MaxRecordBytes: 10},
		"no user":      {Brokers: []string{"h:1"}, SASL: &kafka.SASL{Password: "s3cret"}},
		"no time":      {Brokers: []string{"h:1"}, DeliveryTimeout: -1},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := kafka.Open(t.Context(), config)
			if err == nil {
				_ = b.Close()
				t.Fatal("it was accepted")
			}
			if strings.Contains(err.Error(), "s3cret") {
				t.Errorf("the error %q shows the password", err)
			}
		})
	}
}
