package trial

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/outbox"
	"github.com/waybillhq/waybill/reconcile"
	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/postgres"
	"github.com/waybillhq/waybill/test/lab"
)

var (
	dutyFlag  = flag.Float64("trial.duty", 0.15, "the share of its time that the benchmark's sweep works")
	rowsFlag  = flag.Int("trial.rows", 200_000, "rows of each arm in the benchmark")
	phaseFlag = flag.Duration("trial.phase", 8*time.Second, "how long each half of the benchmark's pairs takes")
	pairsFlag = flag.Int("trial.pairs", 5, "pairs of the benchmark")
)

const (
	fillPurchases = `
INSERT INTO purchase (tenant, id, status, total, version, updated_at)
SELECT 't', 'p' || lpad(n::text, 8, '0'), 'PAID', n % 1000, 1, clock_timestamp() FROM generate_series(1, $1) AS n`
	fillEvents = `
INSERT INTO outbox_event (event_id, tenant_id, aggregate_type, aggregate_id, aggregate_version, event_type, topic, payload)
SELECT id || '/1', tenant, 'purchase', id, 1, 'PurchaseChanged', 'purchases', convert_to('{"status":"PAID","total":' || total || '}', 'UTF8') FROM purchase`
	fillReceipts = `
INSERT INTO outbox_receipt (id, event_id, outcome, via, published_at) SELECT id, event_id, 'SENT', 'poll', clock_timestamp() FROM outbox_event`
	createShown = `
CREATE TABLE purchase_view (
  tenant TEXT COLLATE "C" NOT NULL, id TEXT COLLATE "C" NOT NULL, status TEXT NOT NULL, total NUMERIC(12, 2) NOT NULL,
  version BIGINT NOT NULL, event_id TEXT, updated_at TIMESTAMPTZ NOT NULL, PRIMARY KEY (tenant, id))`
	fillShown = `
INSERT INTO purchase_view SELECT tenant, id, status, total, version, id || '/1', clock_timestamp() FROM purchase`
)

// shift is a business whose transactions are done as fast as its sessions can.
// Each one changes a purchase with its event, and what relay and consumer would
// do later, so that the sweep has nothing to find.
type shift struct {
	db     *sql.DB
	writer *outbox.Writer[store.SQLTx]
	rows   int
	done   atomic.Int64
	idle   restful
}

// restful is a clock that knows how long it was waited on.
type restful struct{ waited atomic.Int64 }

func (c *restful) Now() time.Time { return time.Now().UTC() }

func (c *restful) Wait(ctx context.Context, d time.Duration) error {
	began := time.Now()
	defer func() { c.waited.Add(int64(time.Since(began))) }()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func newShift(b *testing.B) *shift {
	b.Helper()
	dsn := lab.Postgres15(b)
	st, err := postgres.Open(b.Context(), dsn, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = st.Close() })
	if err := st.Migrate(b.Context(), store.MigrateOptions{}); err != nil {
		b.Fatal(err)
	}
	s := &shift{rows: *rowsFlag, writer: outbox.NewWriter(st.SQL(), nil)}
	if s.db, err = sql.Open("pgx", dsn+zone(dsn)); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.db.Close() })
	s.db.SetMaxIdleConns(16)
	for _, statement := range []string{
		createPurchase, createShown, fillPurchases, fillEvents, fillReceipts, "DELETE FROM outbox_pending", fillShown,
		"CREATE UNIQUE INDEX ON purchase (id)", "CREATE UNIQUE INDEX ON purchase_view (id)", "ANALYZE",
	} {
		args := []any(nil)
		if statement == fillPurchases {
			args = []any{s.rows}
		}
		if _, err := s.db.ExecContext(b.Context(), statement, args...); err != nil {
			b.Fatalf("%s: %v", statement, err)
		}
	}
	return s
}

// one does a transaction.
func (s *shift) one(ctx context.Context) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	id := fmt.Sprintf("p%08d", 1+rand.IntN(s.rows))
	var version int64
	if err := tx.QueryRowContext(ctx, "UPDATE purchase SET total = total + 1, version = version + 1, updated_at = clock_timestamp() WHERE tenant = 't' AND id = $1 RETURNING version", id).Scan(&version); err != nil {
		return err
	}
	var total string
	if err := tx.QueryRowContext(ctx, "UPDATE purchase_view SET total = total + 1, version = version + 1, event_id = $2, updated_at = clock_timestamp() WHERE tenant = 't' AND id = $1 RETURNING total::text", id, fmt.Sprintf("%s/%d", id, version)).Scan(&total); err != nil {
		return err
	}
	e := waybill.Event{
		ID: fmt.Sprintf("%s/%d", id, version), Type: changed, Topic: "purchases", TenantID: "t", AggregateType: "purchase", AggregateID: id, AggregateVersion: version,
		Data: []byte(`{"status":"PAID","total":` + total + `}`),
	}
	if err := s.writer.Append(ctx, tx, e); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, `WITH e AS (SELECT id, event_id FROM outbox_event WHERE event_id = $1), gone AS (DELETE FROM outbox_pending WHERE id = (SELECT id FROM e))
		INSERT INTO outbox_receipt (id, event_id, outcome, via, published_at) SELECT id, event_id, 'SENT', 'poll', clock_timestamp() FROM e`, e.ID); err != nil {
		return err
	}
	return tx.Commit()
}

// work returns how many transactions four sessions do in a second.
func (s *shift) work(b *testing.B, long time.Duration) float64 {
	b.Helper()
	ctx, stop := context.WithTimeout(b.Context(), long)
	defer stop()
	s.done.Store(0)
	began := time.Now()
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for ctx.Err() == nil {
				if err := s.one(ctx); err == nil {
					s.done.Add(1)
				} else if ctx.Err() == nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	return float64(s.done.Load()) / time.Since(began).Seconds()
}

func (s *shift) engine(b *testing.B, duty float64) *reconcile.Engine {
	b.Helper()
	check := purchasesCheck()
	check.Key = check.Key[1:] // there is one tenant, and an index on the id
	check.Read.Database, check.Consumer, check.Duty, check.ChunkRows = "shop", nil, duty, 1000
	engine, err := reconcile.New(*check, reconcile.Databases{"shop": {DB: s.db, Dialect: reconcile.Postgres, Texts: postgres.ReadTexts}}, &reconcile.Config{Clock: &s.idle})
	if err != nil {
		b.Fatal(err)
	}
	return engine
}

// sweep compares all keys again and again until it is told to stop, and returns
// how many, and how much of the time it has worked.
func (s *shift) sweep(ctx context.Context, b *testing.B) (keys int64, busy float64) {
	b.Helper()
	engine := s.engine(b, *dutyFlag)
	ledger, err := reconcile.NewLedger(reconcile.Database{DB: s.db, Dialect: reconcile.Postgres}, &reconcile.LedgerConfig{Clock: &s.idle})
	if err == nil {
		err = ledger.Migrate(ctx)
	}
	if err != nil {
		b.Error(err)
		return 0, 0
	}
	began, waited := time.Now(), s.idle.waited.Load()
	for ctx.Err() == nil {
		report, err := reconcile.NewRunner(engine, ledger, &reconcile.RunnerConfig{StretchKeys: 20_000}).Run(ctx, reconcile.Scope{Mode: reconcile.ModeWeekly})
		switch {
		case err != nil && (errors.Is(err, context.Canceled) || ctx.Err() != nil):
		case err != nil:
			b.Error(err)
			return 0, 0
		default:
			if report.Differences+report.Unverified > 0 {
				b.Errorf("found: %s", report.Text())
			}
		}
	}
	// The last run was interrupted; its stretches are on record.
	if err := s.db.QueryRowContext(b.Context(), "SELECT COALESCE(SUM(keys_compared), 0) FROM reconcile_range").Scan(&keys); err != nil {
		b.Error(err)
	}
	return keys, 1 - float64(s.idle.waited.Load()-waited)/float64(time.Since(began))
}

// BenchmarkShopBesideASweep measures transactions with and without a weekly sweep
// at its share of the time, in pairs of which the first half changes. Its figures
// are medians of the pairs.
func BenchmarkShopBesideASweep(b *testing.B) {
	s := newShift(b)
	began := time.Now()
	report, err := s.engine(b, 1).Run(b.Context())
	if err != nil || report.Keys != int64(s.rows) || report.Differences+report.Unverified > 0 || len(report.Unindexed) > 0 {
		b.Fatalf("before: %v\n%s%v", err, report.Text(), report.Unindexed)
	}
	b.Logf("a sweep by itself, with all of its time: %d keys in %.1f s", report.Keys, time.Since(began).Seconds())
	s.work(b, 3*time.Second) // warm
	var alone, beside, lost, shares []float64
	for pair := range *pairsFlag {
		var without, with, share float64
		var keys int64
		for half := range 2 {
			if (pair+half)%2 == 0 {
				without = s.work(b, *phaseFlag)
				continue
			}
			ctx, stop := context.WithCancel(b.Context())
			var sweeping sync.WaitGroup
			sweeping.Go(func() { keys, share = s.sweep(ctx, b) })
			with = s.work(b, *phaseFlag)
			stop()
			sweeping.Wait()
		}
		alone, beside, shares = append(alone, without), append(beside, with), append(shares, share)
		lost = append(lost, 100*(1-with/without))
		b.Logf("pair %d: %.0f transactions/s alone, %.0f beside the sweep, %.1f %% lost; it worked %.1f %% of the time, for %d keys so far", pair+1, without, with, lost[pair], 100*share, keys)
	}
	middle := func(all []float64) float64 {
		slices.Sort(all)
		return all[len(all)/2]
	}
	b.ReportMetric(middle(alone), "alone-tx/s")
	b.ReportMetric(middle(beside), "beside-tx/s")
	b.ReportMetric(middle(lost), "lost-%")
	b.ReportMetric(100*middle(shares), "worked-%")
	b.ReportMetric(0, "ns/op")
}
