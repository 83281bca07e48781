package trading

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker/kafka"
	"github.com/waybillhq/waybill/examples/trading/chain"
	"github.com/waybillhq/waybill/inbox"
	"github.com/waybillhq/waybill/inbox/guard"
	"github.com/waybillhq/waybill/outbox"
	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/mysql"
	"github.com/waybillhq/waybill/store/postgres"
)

// The test binary is also the consumer that is killed: these variables say so,
// and what it works on.
const (
	envKind    = "WAYBILL_TRADING_KIND" // "postgres15" or "mysql9"
	envDSN     = "WAYBILL_TRADING_DSN"
	envKafka   = "WAYBILL_TRADING_KAFKA"
	envRun     = "WAYBILL_TRADING_RUN"
	envCoupons = "WAYBILL_TRADING_COUPONS"
	envSession = "WAYBILL_TRADING_SESSION"
)

func TestMain(m *testing.M) {
	if os.Getenv(envKind) == "" {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := child(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// Names of one run: the brokers' topics and groups are everyone's.
func ordersTopic(run string) string      { return run + "-orders" }
func fulfilmentsTopic(run string) string { return run + "-fulfilments" }
func groupName(run, group string) string { return run + "-" + group }

var groups = []string{"fulfilment", "points", "ledger"}

func child(ctx context.Context) error {
	if os.Getenv(envKind) == "postgres15" {
		st, err := postgres.Open(ctx, os.Getenv(envDSN), nil)
		if err != nil {
			return err
		}
		defer func() { _ = st.Close() }()
		return consume(ctx, st, func(tx pgx.Tx) guard.Tx { return guard.OverNative(tx) }, outbox.NewWriter(st, nil).Append)
	}
	st, err := mysql.Open(ctx, os.Getenv(envDSN), nil)
	if err != nil {
		return err
	}
	defer func() { _ = st.Close() }()
	writer := outbox.NewWriter[store.SQLTx](st, nil)
	return consume(ctx, st, func(tx *sql.Tx) guard.Tx { return guard.Over(tx, guard.MySQL) },
		func(ctx context.Context, tx *sql.Tx, events ...waybill.Event) error {
			return writer.Append(ctx, tx, events...)
		})
}

// consume runs the three groups until ctx ends.
func consume[TX any](ctx context.Context, st store.Consumer[TX], guarded func(tx TX) guard.Tx, tell chain.Tell[TX]) error {
	run := os.Getenv(envRun)
	coupons := chain.CouponClient{URL: os.Getenv(envCoupons)}
	handlers := map[string]inbox.Handler[TX]{
		"fulfilment": chain.On(chain.Fulfil(fulfilmentsTopic(run)), guarded, tell),
		"points":     chain.On(chain.AddPoints, guarded, nil),
		"ledger":     chain.On(chain.Book, guarded, nil),
	}
	session, err := time.ParseDuration(os.Getenv(envSession))
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	failed := make([]error, len(groups))
	var all sync.WaitGroup
	for i, group := range groups {
		all.Go(func() {
			b, err := kafka.Open(ctx, &kafka.Config{Brokers: strings.Split(os.Getenv(envKafka), ","), SessionTimeout: session})
			if err != nil {
				failed[i] = err
				return
			}
			defer func() { _ = b.Close() }()
			topics := []string{ordersTopic(run)}
			if group == "ledger" {
				topics = append(topics, fulfilmentsTopic(run))
			}
			var effects []inbox.Effect
			if group == "fulfilment" {
				effects = []inbox.Effect{chain.CouponEffect(coupons)}
			}
			p, err := inbox.New(st, b, handlers[group], &inbox.Config{
				Group: groupName(run, group), Topics: topics, Effects: effects, BatchSize: 50, PollWait: 100 * time.Millisecond, SweepEvery: 500 * time.Millisecond,
				Schedule: []time.Duration{100 * time.Millisecond, 200 * time.Millisecond}, Logger: log,
				CrashTries: 100, // it is not the events' fault that this process is killed
			})
			if err == nil {
				err = p.Run(ctx)
			}
			failed[i] = err
		})
	}
	all.Wait()
	return errors.Join(failed...)
}
