package crash

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker/natsjs"
	"github.com/waybillhq/waybill/inbox"
	"github.com/waybillhq/waybill/relay"
	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/mysql"
	"github.com/waybillhq/waybill/store/postgres"
	"github.com/waybillhq/waybill/store/sqlite"
)

// The test binary is also the program that is killed: these variables say what
// it is to be.
const (
	envRole  = "WAYBILL_CRASH_ROLE" // "relay" or "consumer"
	envStore = "WAYBILL_CRASH_STORE"
	envDSN   = "WAYBILL_CRASH_DSN"
	envNATS  = "WAYBILL_CRASH_NATS"
)

const (
	topic    = "orders"
	group    = "inventory"
	leaseTTL = 1500 * time.Millisecond
)

func TestMain(m *testing.M) {
	if os.Getenv(envRole) == "" {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := child(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func child(ctx context.Context) error {
	b, err := natsjs.Open(ctx, os.Getenv(envNATS), &natsjs.Config{Partitions: 4})
	if err != nil {
		return err
	}
	defer b.Close()
	switch os.Getenv(envStore) {
	case "sqlite":
		st, err := sqlite.Open(ctx, os.Getenv(envDSN), nil)
		if err != nil {
			return err
		}
		defer st.Close()
		return serve(ctx, st, st, b, sqlEffect)
	case "mysql9", "mariadb10":
		st, err := mysql.Open(ctx, os.Getenv(envDSN), nil)
		if err != nil {
			return err
		}
		defer st.Close()
		return serve(ctx, st, st, b, sqlEffect)
	case "postgres15":
		st, err := postgres.Open(ctx, os.Getenv(envDSN), nil)
		if err != nil {
			return err
		}
		defer st.Close()
		return serve(ctx, st, st, b, func(ctx context.Context, tx pgx.Tx, e waybill.Event) error {
			_, err := tx.Exec(ctx, `INSERT INTO effect (event_id, of_key, version) VALUES ($1, $2, $3)`, e.ID, e.Key, e.AggregateVersion)
			return err
		})
	}
	return fmt.Errorf("unknown store %q", os.Getenv(envStore))
}

func sqlEffect(ctx context.Context, tx *sql.Tx, e waybill.Event) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO effect (event_id, of_key, version) VALUES (?, ?, ?)`, e.ID, e.Key, e.AggregateVersion)
	return err
}

var errPoison = errors.New("poison")

func serve[TX any](ctx context.Context, out relay.Store, in store.Consumer[TX], b *natsjs.Broker, effect inbox.Handler[TX]) error {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if os.Getenv(envRole) == "relay" {
		r, err := relay.New(out, b, &relay.Config{
			LeaseTTL: leaseTTL, RenewEvery: 200 * time.Millisecond, SweepEvery: 2 * time.Second, Logger: log,
			PublishBatch: 20,
		})
		if err != nil {
			return err
		}
		return r.Run(ctx)
	}
	p, err := inbox.New(in, b, func(ctx context.Context, tx TX, e waybill.Event) error {
		if e.Type == "Poison" {
			return errPoison
		}
		return effect(ctx, tx, e)
	}, &inbox.Config{
		Group: group, Topics: []string{topic}, BatchSize: 20, ReaderTTL: leaseTTL, Logger: log,
		Schedule: []time.Duration{50 * time.Millisecond, 100 * time.Millisecond}, SweepEvery: 100 * time.Millisecond,
		Effects: effects(),
	})
	if err != nil {
		return err
	}
	return p.Run(ctx)
}
