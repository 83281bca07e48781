package strategy

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker/membroker"
	"github.com/waybillhq/waybill/inbox"
	"github.com/waybillhq/waybill/inbox/redisfilter"
	"github.com/waybillhq/waybill/internal/fault"
	"github.com/waybillhq/waybill/internal/testenv"
	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/sqlite"
	"github.com/waybillhq/waybill/test/lab"
)

// The test binary is also the consumer that is killed.
const (
	envFile  = "WAYBILL_STRATEGY_FILE"
	envRedis = "WAYBILL_STRATEGY_REDIS"
	envID    = "WAYBILL_STRATEGY_ID"
)

func TestMain(m *testing.M) {
	if os.Getenv(envFile) == "" {
		os.Exit(m.Run())
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err := consumeOne(ctx, os.Getenv(envFile), os.Getenv(envRedis), os.Getenv(envID), nil)
	fmt.Fprintln(os.Stderr, "not killed:", err)
	os.Exit(1)
}

const filtered = "filtered"

// consumeOne gives an event to a consumer whose handler marks it in Redis while
// its transaction is open, as a hand-written filter does, until ctx ends.
func consumeOne(ctx context.Context, file, redis, id string, events *inbox.Events) error {
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{redis}, DisableCache: true})
	if err != nil {
		return err
	}
	defer client.Close()
	filter := redisfilter.New(client, nil)
	st, err := sqlite.Open(ctx, file, nil)
	if err != nil {
		return err
	}
	defer func() { _ = st.Close() }()
	b := membroker.New("orders")
	record, err := waybill.Encode(waybill.FormatEnvelope, &waybill.Event{ID: id, Type: "OrderPaid", Topic: "orders", AggregateType: "order", AggregateID: id})
	if err != nil {
		return err
	}
	config := &inbox.Config{
		Group: filtered, Topics: []string{"orders"}, Prefilter: filter, PollWait: 10 * time.Millisecond,
		ReaderTTL: time.Second, Logger: slog.New(slog.DiscardHandler),
	}
	if events != nil {
		config.Events = *events
	}
	p, err := inbox.New(st, b.Connect(), func(ctx context.Context, tx *sql.Tx, e waybill.Event) error {
		if _, err := tx.ExecContext(ctx, `INSERT INTO effect (event_id) VALUES (?)`, e.ID); err != nil {
			return err
		}
		if err := filter.Remember(ctx, filtered, []string{e.ID}); err != nil {
			return err
		}
		fault.Point("strategy.marked")
		return nil
	}, config)
	if err != nil {
		return err
	}
	if err := errors.Join(b.Publish(ctx, []waybill.Record{record, record})...); err != nil {
		return err
	}
	return p.Run(ctx)
}

// A consumer is killed after it has marked the event in Redis and before its
// commit. The mark stays; the next consumer handles the event nevertheless.
func TestKilledBetweenMarkAndCommit(t *testing.T) {
	redis := testenv.Redis7(t)
	dir := t.TempDir()
	file, flag, id := filepath.Join(dir, "points.db"), filepath.Join(dir, "marked"), waybill.NewID()
	st, err := sqlite.Open(t.Context(), file, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	if err := st.Migrate(t.Context(), store.MigrateOptions{SkipOutbox: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := st.DB().ExecContext(t.Context(), `CREATE TABLE effect (event_id TEXT NOT NULL)`); err != nil {
		t.Fatal(err)
	}

	lab.KillAt(t, flag, envFile+"="+file, envRedis+"="+redis, envID+"="+id, fault.EnvPoint+"=strategy.marked", fault.EnvFile+"="+flag)
	count := func() (n int) {
		if err := st.DB().QueryRowContext(t.Context(), `SELECT count(*) FROM effect WHERE event_id = ?`, id).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := count(); n != 0 {
		t.Fatalf("%d effects before any commit", n)
	}

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	applied := make(chan struct{}, 1)
	err = consumeOne(ctx, file, redis, id, &inbox.Events{
		Applied:   func(inbox.AppliedInfo) { applied <- struct{}{} },
		Duplicate: func(inbox.DuplicateInfo) { cancel() }, // the second delivery
	})
	if err != nil || len(applied) != 1 {
		t.Errorf("the next consumer applied it %d times, %v; want once", len(applied), err)
	}
	if n := count(); n != 1 {
		t.Errorf("%d effects, want 1", n)
	}
}
