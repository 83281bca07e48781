package adapter

import (
	"errors"
	"io/fs"
	"log/slog"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
	"github.com/waybillhq/waybill/broker/natsjs"
	"github.com/waybillhq/waybill/cmd/waybill/internal/config"
	"github.com/waybillhq/waybill/internal/testenv"
	"github.com/waybillhq/waybill/store"
)

func TestBrokerSettingsReachTheClient(t *testing.T) {
	logger := slog.New(slog.DiscardHandler)
	got := natsConfig(config.Broker{Prefix: "p", Partitions: 3, Replicas: 2, Retention: time.Hour, CredentialsFile: "c"}, logger)
	want := &natsjs.Config{Prefix: "p", Partitions: 3, Replicas: 2, Retention: time.Hour, CredentialsFile: "c", Logger: logger}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestStoreSettingsReachTheTables(t *testing.T) {
	c := config.Store{Kind: "sqlite", DSN: filepath.Join(t.TempDir(), "a.db"), NoTrigger: true, Names: config.Names{Event: `my "events"`}}
	if _, err := OpenStore(t.Context(), c); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: got %v, want %v", err, fs.ErrNotExist)
	}
	st, err := CreateStore(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = st.Close() }()
	if err := st.Migrate(t.Context(), store.MigrateOptions{NoTrigger: c.NoTrigger}); err != nil {
		t.Fatal(err)
	}
	if meta, err := st.ReadMeta(t.Context()); err != nil || meta.Trigger {
		t.Errorf("got %+v, error %v", meta, err)
	}
	other, err := OpenStore(t.Context(), config.Store{Kind: "sqlite", DSN: "file:" + c.DSN})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close() }()
	if _, err := other.Find(t.Context(), store.Filter{}); err == nil {
		t.Error("the usual name of the table exists beside the configured one")
	}
}

func TestUnknownAndMissing(t *testing.T) {
	for name, open := range map[string]func() error{
		"store":     func() error { _, err := OpenStore(t.Context(), config.Store{Kind: "oracle", DSN: "x"}); return err },
		"store dsn": func() error { _, err := OpenStore(t.Context(), config.Store{Kind: "postgres"}); return err },
		"inbox": func() error {
			_, err := OpenInbox(t.Context(), "inv", config.Inbox{Kind: "oracle", DSN: "x"})
			return err
		},
		"another kind's URL": func() error {
			_, err := CreateStore(t.Context(), config.Store{Kind: "sqlite", DSN: "postgres://app@db/orders"})
			return err
		},
		"another kind's URL of a consumer": func() error {
			_, err := OpenInbox(t.Context(), "inv", config.Inbox{Kind: "postgres", DSN: "mariadb://app@db/orders"})
			return err
		},
		"broker": func() error {
			_, err := OpenBroker(t.Context(), config.Broker{Kind: "fax"}, slog.Default())
			return err
		},
		"broker url": func() error {
			_, err := OpenBroker(t.Context(), config.Broker{Kind: "nats"}, slog.Default())
			return err
		},
		"another kind's broker url": func() error {
			_, err := OpenBroker(t.Context(), config.Broker{Kind: "nats", URL: "kafka://mq:9092"}, slog.Default())
			return err
		},
	} {
		var wrong *ConfigError
		if err := open(); !errors.As(err, &wrong) {
			t.Errorf("%s: got %v, want a ConfigError", name, err)
		}
	}
}

// The embedded broker keeps its streams over a restart, listens where it is
// told, and makes topics as they come.
func TestEmbedded(t *testing.T) {
	c := config.Broker{Kind: "embedded", Dir: t.TempDir(), Port: testenv.FreePorts(t, 1), Partitions: 2, SyncAlways: true}
	for range 2 {
		b, err := OpenBroker(t.Context(), c, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		for i, err := range b.Publish(t.Context(), []waybill.Record{{EventID: "a", Topic: "orders", Key: "k"}, {EventID: "b", Topic: "payments", Key: "k"}}) {
			if err != nil {
				t.Errorf("record %d: %v", i, err)
			}
		}
		if err := b.EnsureTopics(t.Context(), []broker.TopicSpec{{Name: "orders", Partitions: 2}}); err != nil {
			t.Errorf("orders was not made with the configured partitions: %v", err)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestDescribeHidesSecrets(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{Describe(config.Store{Kind: "sqlite", DSN: "file:/data/a%20b.db?mode=rw"}), "sqlite /data/a b.db"},
		{Describe(config.Store{Kind: "postgres", DSN: "postgres://app:pw@db/orders"}), "postgres postgres://app:*****@db/orders"},
		{Describe(config.Store{Kind: "mysql", DSN: "app:p@s/w:d@tcp(db:3306)/orders"}), "mysql app:*****@tcp(db:3306)/orders"},
		{Describe(config.Store{Kind: "mysql", DSN: "mysql://app:pw@db/orders"}), "mysql mysql://app:*****@db/orders"},
		{DescribeBroker(config.Broker{Kind: "nats", URL: "nats://app:pw@mq:4222"}), "nats nats://app:*****@mq:4222"},
		{DescribeBroker(config.Broker{Kind: "embedded", Dir: "nats", Port: 4222}), "embedded nats at 127.0.0.1:4222, streams in nats"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}
