package bench

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
	"github.com/waybillhq/waybill/inbox"
	"github.com/waybillhq/waybill/store"
)

// The arms of a consumer. They have the same effect, a row of a read model for
// each key, and read the same topic as groups of their own.
const (
	armConsume = "consume"
	armBare    = "bare"
)

// consumption is the task of a consumer's arm.
type consumption struct {
	Group   string
	Gate    string
	Workers int
	Batch   int
	// Poison is a key whose handler always fails; its events do not count.
	Poison string
}

var modelSQL = statements{
	kindPostgres: `CREATE TABLE bench_model (grp TEXT NOT NULL, id TEXT NOT NULL, version BIGINT NOT NULL, events BIGINT NOT NULL, data BYTEA NOT NULL, PRIMARY KEY (grp, id))`,
	kindMySQL:    `CREATE TABLE bench_model (grp VARCHAR(64) NOT NULL, id VARCHAR(64) NOT NULL, version BIGINT NOT NULL, events BIGINT NOT NULL, data LONGBLOB NOT NULL, PRIMARY KEY (grp, id))`,
	kindSQLite:   `CREATE TABLE bench_model (grp TEXT NOT NULL, id TEXT NOT NULL, version INTEGER NOT NULL, events INTEGER NOT NULL, data BLOB NOT NULL, PRIMARY KEY (grp, id)) WITHOUT ROWID`,
}

var effectSQL = statements{
	kindPostgres: `
INSERT INTO bench_model AS m (grp, id, version, events, data) VALUES ($1, $2, $3, 1, $4)
ON CONFLICT (grp, id) DO UPDATE SET version = EXCLUDED.version, events = m.events + 1, data = EXCLUDED.data`,
	kindMySQL: `
INSERT INTO bench_model (grp, id, version, events, data) VALUES (?, ?, ?, 1, ?)
ON DUPLICATE KEY UPDATE version = VALUES(version), events = events + 1, data = VALUES(data)`,
	kindSQLite: `
INSERT INTO bench_model AS m (grp, id, version, events, data) VALUES (?, ?, ?, 1, ?)
ON CONFLICT (grp, id) DO UPDATE SET version = excluded.version, events = m.events + 1, data = excluded.data`,
}

// effects counts what a group has done.
func (d *database) effects(ctx context.Context, group string) (n int, err error) {
	query := `SELECT COALESCE(SUM(events), 0) FROM bench_model WHERE grp = ?`
	if d.pool != nil {
		query = `SELECT COALESCE(SUM(events), 0) FROM bench_model WHERE grp = $1`
	}
	err = d.db.QueryRowContext(ctx, query, group).Scan(&n)
	return n, err
}

func (t *task) consumer(ctx context.Context, d *database, h *house) (*outcome, error) {
	client, err := h.client(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = client.Close() }()
	query := effectSQL.of(d.kind)
	if d.pool != nil {
		effect := func(ctx context.Context, tx pgx.Tx, e *waybill.Event) error {
			_, err := tx.Exec(ctx, query, t.Consume.Group, e.AggregateID, e.AggregateVersion, e.Data)
			return err
		}
		if t.Arm == armConsume {
			return consume(ctx, t, store.Consumer[pgx.Tx](d.pg), client, effect)
		}
		return t.bare(ctx, client, func(ctx context.Context, do func(effect func(e *waybill.Event) error) error) error {
			return pgx.BeginFunc(ctx, d.pool, func(tx pgx.Tx) error {
				return do(func(e *waybill.Event) error { return effect(ctx, tx, e) })
			})
		})
	}
	effect := func(ctx context.Context, tx *sql.Tx, e *waybill.Event) error {
		_, err := tx.ExecContext(ctx, query, t.Consume.Group, e.AggregateID, e.AggregateVersion, e.Data)
		return err
	}
	if t.Arm == armConsume {
		return consume(ctx, t, d.store.(store.Consumer[*sql.Tx]), client, effect)
	}
	return t.bare(ctx, client, func(ctx context.Context, do func(effect func(e *waybill.Event) error) error) error {
		tx, err := d.db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		if err := do(func(e *waybill.Event) error { return effect(ctx, tx, e) }); err != nil {
			return err
		}
		return tx.Commit()
	})
}

var errPoison = errors.New("poison")

// consume has a processor work through the topic. The clock runs from the first
// batch that it takes to the last event that it applies.
func consume[TX any](ctx context.Context, t *task, st store.Consumer[TX], sub broker.Subscriber, effect func(context.Context, TX, *waybill.Event) error) (*outcome, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var applied, batches atomic.Int64
	var began, ended atomic.Int64
	start := now()
	p, err := inbox.New(st, sub, func(ctx context.Context, tx TX, e waybill.Event) error {
		began.CompareAndSwap(0, int64(now().Sub(start))+1)
		if e.AggregateID == t.Consume.Poison {
			return errPoison
		}
		return effect(ctx, tx, &e)
	}, &inbox.Config{
		Group: t.Consume.Group, Topics: []string{t.Topic}, Gate: inbox.Gate(t.Consume.Gate), Workers: t.Consume.Workers,
		BatchSize: t.Consume.Batch, Logger: slog.New(slog.DiscardHandler),
		Events: inbox.Events{Batch: func(inbox.BatchInfo) { batches.Add(1) }, Applied: func(inbox.AppliedInfo) {
			if applied.Add(1) == int64(t.Events) {
				ended.Store(int64(now().Sub(start)))
				cancel()
			}
		}},
	})
	if err != nil {
		return nil, err
	}
	if err := p.Run(ctx); err != nil {
		return nil, err
	}
	return &outcome{Batches: int(batches.Load()), Events: int(applied.Load()), Seconds: time.Duration(ended.Load() - began.Load()).Seconds()}, nil
}

// bare does by hand what a consumer without an inbox does: a transaction for
// each batch, and then the position. A batch that is delivered twice has its
// effects twice.
func (t *task) bare(ctx context.Context, sub broker.Subscriber, transact func(context.Context, func(effect func(*waybill.Event) error) error) error) (*outcome, error) {
	subscription, err := sub.Subscribe(ctx, broker.SubscribeRequest{Group: t.Consume.Group, Topics: []string{t.Topic}})
	if err != nil {
		return nil, err
	}
	defer func() { _ = subscription.Close() }()
	if assigner, ok := subscription.(broker.Assigner); ok {
		all, err := assigner.Partitions(ctx)
		if err == nil {
			err = assigner.Assign(ctx, all)
		}
		if err != nil {
			return nil, err
		}
	}
	result := &outcome{}
	var began time.Time
	for result.Events < t.Events {
		deliveries, err := subscription.Poll(ctx, t.Consume.Batch, time.Second)
		if err != nil {
			return nil, err
		}
		if len(deliveries) == 0 {
			continue
		}
		if began.IsZero() {
			began = now()
		}
		last := make(map[broker.Partition]int64)
		err = transact(ctx, func(effect func(*waybill.Event) error) error {
			for _, delivery := range deliveries {
				e, err := waybill.Decode(&delivery.Record)
				if err != nil {
					return err
				}
				if err := effect(&e); err != nil {
					return fmt.Errorf("effect of %s: %w", e.ID, err)
				}
				last[broker.Partition{Topic: delivery.Record.Topic, ID: delivery.Partition}] = delivery.Position
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		positions := make([]broker.Position, 0, len(last))
		for partition, position := range last {
			positions = append(positions, broker.Position{Partition: partition, Settled: position})
		}
		if err := subscription.Commit(ctx, positions); err != nil {
			return nil, err
		}
		result.Events += len(deliveries)
		result.Batches++
		result.Seconds = since(began)
	}
	return result, nil
}
