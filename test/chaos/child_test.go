package chaos

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker/kafka"
	"github.com/waybillhq/waybill/cdc"
	"github.com/waybillhq/waybill/cdc/mybinlog"
	"github.com/waybillhq/waybill/cdc/pgwal"
	"github.com/waybillhq/waybill/inbox"
	"github.com/waybillhq/waybill/relay"
	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/mysql"
	"github.com/waybillhq/waybill/store/postgres"
	"github.com/waybillhq/waybill/test/chaos/verdict"
)

// The test binary is also every process of a run: these variables say which one
// it is to be.
const (
	envRole    = "WAYBILL_CHAOS_ROLE" // "writer", "relay" or "consumer"
	envName    = "WAYBILL_CHAOS_NAME"
	envKind    = "WAYBILL_CHAOS_KIND" // "postgres15" or "mysql9"
	envDSN     = "WAYBILL_CHAOS_DSN"
	envKafka   = "WAYBILL_CHAOS_KAFKA" // the link's own address
	envBroker  = "WAYBILL_CHAOS_BROKER"
	envGroup   = "WAYBILL_CHAOS_GROUP"
	envHistory = "WAYBILL_CHAOS_HISTORY"
	envSeed    = "WAYBILL_CHAOS_SEED"
)

const (
	topic      = "orders"
	partitions = 6
	leaseTTL   = 2 * time.Second // 4 where relays read the log, which begins anew with each loss of a lease
	maxMessage = 64 << 10        // of the topic, in bytes
)

func TestMain(m *testing.M) {
	if os.Getenv(envRole) == "" {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := child(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		if errors.As(err, new(awayError)) {
			os.Exit(exitAway)
		}
		os.Exit(1)
	}
}

// exitAway is how a process ends that found a server away when it started. One
// that had started must not end at all.
const exitAway = 3

type awayError struct{ error }

func (e awayError) Unwrap() error { return e.error }

func child(ctx context.Context) error {
	if os.Getenv(envKind) == "postgres15" {
		st, err := postgres.Open(ctx, os.Getenv(envDSN), nil)
		if err != nil {
			return awayError{err}
		}
		defer func() { _ = st.Close() }()
		switch os.Getenv(envRole) {
		case "writer":
			return write(ctx, st.SQL(), "pgx", os.Getenv(envDSN))
		case "relay":
			return relayAll(ctx, st, func(dsn string) (cdc.Source, error) {
				return pgwal.New(dsn, &pgwal.Config{SenderTimeout: leaseTTL, Logger: logger()})
			})
		}
		return consume(ctx, st, postgresEffect)
	}
	st, err := mysql.Open(ctx, os.Getenv(envDSN), nil)
	if err != nil {
		return awayError{err}
	}
	defer func() { _ = st.Close() }()
	switch os.Getenv(envRole) {
	case "writer":
		return write(ctx, st, "mysql", os.Getenv(envDSN))
	case "relay":
		return relayAll(ctx, st, func(dsn string) (cdc.Source, error) {
			return mybinlog.New(dsn, &mybinlog.Config{Heartbeat: time.Second, Logger: logger()})
		})
	}
	return consume(ctx, st, mysqlEffect)
}

// openBroker goes to Kafka by the process's own link, whatever address the
// cluster tells it.
func openBroker(ctx context.Context) (*kafka.Broker, error) {
	link := os.Getenv(envKafka)
	return kafka.Open(ctx, &kafka.Config{
		Brokers: []string{os.Getenv(envBroker)}, SessionTimeout: 2 * time.Second, ConnectTimeout: 2 * time.Second,
		Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, link)
		},
	})
}

func logger() *slog.Logger {
	level := slog.LevelWarn
	if os.Getenv(envRole) == "relay" {
		level = slog.LevelInfo // says what became of the log
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
}

func relayAll(ctx context.Context, st relay.Store, openLog func(dsn string) (cdc.Source, error)) error {
	b, err := openBroker(ctx)
	if err != nil {
		return awayError{err}
	}
	defer func() { _ = b.Close() }()
	var source cdc.Source
	ttl := leaseTTL
	own := "" // what the relay does where no mode is set for all
	if mode := os.Getenv(envMode); mode != modePoll {
		if source, err = openLog(os.Getenv(envDSN)); err != nil {
			return err
		}
		if mode == modeCDC {
			own = store.ModeCDC
		}
		ttl = 2 * leaseTTL
	}
	var started atomic.Bool
	r, err := relay.New(st, b, &relay.Config{
		Source: source, Mode: own, Heartbeat: time.Second,
		Events: relay.Events{Leases: func(relay.LeasesInfo) { started.Store(true) }},
		Host:   os.Getenv(envName), LeaseTTL: ttl, RenewEvery: ttl / 8, SweepEvery: 5 * time.Second, PublishTimeout: 3 * time.Second,
		BackoffMin: 100 * time.Millisecond, BackoffMax: 2 * time.Second, PublishBatch: 100, Logger: logger(),
	})
	if err != nil {
		return err
	}
	return untilStarted(&started, r.Run(ctx))
}

// untilStarted takes the error of a process that never came to work for that of
// a server that was away.
func untilStarted(started *atomic.Bool, err error) error {
	if err != nil && !started.Load() {
		return awayError{err}
	}
	return err
}

func consume[TX any](ctx context.Context, st store.Consumer[TX], effect func(ctx context.Context, tx TX, group string, e *waybill.Event, amount int64) error) error {
	b, err := openBroker(ctx)
	if err != nil {
		return awayError{err}
	}
	defer func() { _ = b.Close() }()
	group := os.Getenv(envGroup)
	var started atomic.Bool
	p, err := inbox.New(st, b, func(ctx context.Context, tx TX, e waybill.Event) error {
		var content struct {
			Amount int64 `json:"amount"`
		}
		if err := json.Unmarshal(e.Data, &content); err != nil {
			return err
		}
		// The poison has its effect first: it must be undone.
		if err := effect(ctx, tx, group, &e, content.Amount); err != nil {
			return err
		}
		if e.Type == verdict.Poison {
			return errors.New(verdict.PoisonError(e.ID))
		}
		return nil
	}, &inbox.Config{
		Group: group, Topics: []string{topic}, BatchSize: 50, PollWait: 100 * time.Millisecond, SweepEvery: 500 * time.Millisecond,
		Schedule: []time.Duration{100 * time.Millisecond, 200 * time.Millisecond}, HandlerTimeout: 5 * time.Second, ReaderTTL: leaseTTL, Logger: logger(),
		Events:     inbox.Events{Readers: func(inbox.ReadersInfo) { started.Store(true) }},
		CrashTries: 100, // it is not the events' fault that this process is killed
	})
	if err != nil {
		return err
	}
	return untilStarted(&started, p.Run(ctx))
}

// What a handler does is not idempotent.
const (
	insertEffect = `INSERT INTO effect (consumer_group, event_id, of_key, version) VALUES ($1, $2, $3, $4)`
	updateModel  = `UPDATE model SET version = $1, events = events + 1, total = total + $2 WHERE consumer_group = $3 AND of_key = $4`
	insertMySQL  = `INSERT INTO effect (consumer_group, event_id, of_key, version) VALUES (?, ?, ?, ?)`
	updateMySQL  = `UPDATE model SET version = ?, events = events + 1, total = total + ? WHERE consumer_group = ? AND of_key = ?`
)

func postgresEffect(ctx context.Context, tx pgx.Tx, group string, e *waybill.Event, amount int64) error {
	if _, err := tx.Exec(ctx, insertEffect, group, e.ID, e.Key, e.AggregateVersion); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, updateModel, e.AggregateVersion, amount, group, e.Key)
	return err
}

func mysqlEffect(ctx context.Context, tx *sql.Tx, group string, e *waybill.Event, amount int64) error {
	if _, err := tx.ExecContext(ctx, insertMySQL, group, e.ID, e.Key, e.AggregateVersion); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, updateMySQL, e.AggregateVersion, amount, group, e.Key)
	return err
}
