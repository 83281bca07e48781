package bench

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/outbox"
	"github.com/waybillhq/waybill/store"
)

// AppendOptions are those of [Append].
type AppendOptions struct {
	Options
	Writers int // at the same time
}

// AppendReport is what "bench append" found: medians of the runs, in
// transactions per second.
type AppendReport struct {
	Host     Host     `json:"host"`
	Versions Versions `json:"versions"`

	Runs         int `json:"runs"`          // how often each arm ran
	Events       int `json:"events"`        // transactions of each arm in each run, with one event each
	Writers      int `json:"writers"`       // connections that write at the same time
	PayloadBytes int `json:"payload_bytes"` // data of one event

	Update      float64 `json:"update_tx_per_s"` // the raw limit: one row of the application changed, no event
	Insert      float64 `json:"insert_tx_per_s"` // the same and an INSERT by hand into outbox_event
	Append      float64 `json:"append_tx_per_s"` // the same with Append instead
	AppendRatio float64 `json:"append_ratio"`    // median of each run's append / insert

	Commit      float64 `json:"append_commit_tx_per_s,omitempty"` // with AppendCommit, where the store has it
	CommitRatio float64 `json:"append_commit_ratio,omitempty"`    // median of each run's append_commit / append

	Each []AppendRun `json:"each"` // the runs
}

// AppendRun is one run of all arms.
type AppendRun struct {
	Update float64 `json:"update_tx_per_s"`                  // as in the report
	Insert float64 `json:"insert_tx_per_s"`                  // as in the report
	Append float64 `json:"append_tx_per_s"`                  // as in the report
	Commit float64 `json:"append_commit_tx_per_s,omitempty"` // as in the report
}

const (
	createAccountSQL = `CREATE TABLE bench_account (id integer NOT NULL PRIMARY KEY, version integer NOT NULL)`
	insertAccountSQL = `INSERT INTO bench_account (id, version) VALUES (%d, 0)`
	updateAccountSQL = `UPDATE bench_account SET version = version + 1 WHERE id = %d`

	insertEventSQL = `
INSERT INTO outbox_event (event_id, tenant_id, aggregate_type, aggregate_id, aggregate_version, event_type, event_version,
                          topic, event_key, payload, content_type, occurred_at)
VALUES (%s)`
)

// Append measures what an event costs the transaction that writes it. Each
// writer changes its own row, so that nobody waits for a lock.
func Append(ctx context.Context, o *AppendOptions) (*AppendReport, error) {
	if o.Writers < 1 {
		return nil, optionError("--writers", errors.New("less than 1"), "")
	}
	o.Broker = kindNone
	b, err := newBench(ctx, &o.Options)
	if err != nil {
		return nil, err
	}
	report := &AppendReport{Host: b.host, Versions: b.versions, Runs: o.Runs, Events: o.Events, Writers: o.Writers, PayloadBytes: o.Payload}
	if err = b.makeAccounts(ctx, o.Writers); err == nil {
		report.Each, err = repeat(o.Runs, func(int) (*AppendRun, error) { return b.appendRun(ctx, o) })
	}
	if err = errors.Join(err, b.leave(ctx)); err != nil {
		return nil, err
	}
	report.Host.LoadEnd = load()
	report.sum()
	return report, nil
}

func (b *bench) makeAccounts(ctx context.Context, writers int) error {
	_, err := b.db.db.ExecContext(ctx, createAccountSQL)
	for i := 0; i < writers && err == nil; i++ {
		_, err = b.db.db.ExecContext(ctx, fmt.Sprintf(insertAccountSQL, i))
	}
	return err
}

// transact is one transaction of a writer.
type transact func(ctx context.Context, account int, event waybill.Event) error

// turns is in how many parts an arm's transactions of one run are done, in turn
// with the other arms.
const turns = 10

func (b *bench) appendRun(ctx context.Context, o *AppendOptions) (*AppendRun, error) {
	arms := b.db.appendArms()
	times := make([]float64, len(arms))
	counts := make([]int, len(arms))
	for turn := range turns {
		n := o.Events*(turn+1)/turns - o.Events*turn/turns
		for i := range arms {
			i = (i + turn) % len(arms)
			events := b.source.events(n)
			began := now()
			if err := inParallel(ctx, o.Writers, events, arms[i]); err != nil {
				return nil, err
			}
			times[i] += since(began)
			counts[i] += n
		}
	}
	rate := func(i int) float64 { return round(ratio(float64(counts[i]), times[i]), 0) }
	run := &AppendRun{Update: rate(0), Insert: rate(1), Append: rate(2)}
	if len(arms) > 3 {
		run.Commit = rate(3)
	}
	for _, n := range counts[1:] {
		b.expected += n
	}
	events, _, _, err := b.db.counts(ctx)
	if err == nil && events != b.expected {
		err = fmt.Errorf("there are %d events, %d were written", events, b.expected)
	}
	o.say("%d events: update %s, insert %s, append %s, append and commit %s", o.Events, perSecond(run.Update), perSecond(run.Insert), perSecond(run.Append), perSecond(run.Commit))
	return run, err
}

// inParallel lets writers share the events.
func inParallel(ctx context.Context, writers int, events []waybill.Event, do transact) error {
	var all sync.WaitGroup
	errs := make([]error, writers)
	for w := range writers {
		all.Go(func() {
			for i := w; i < len(events) && errs[w] == nil; i += writers {
				errs[w] = do(ctx, w, events[i])
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// appendArms are: no event, an INSERT by hand, Append, and AppendCommit where
// there is one.
func (d *database) appendArms() []transact {
	if d.pg != nil {
		return d.postgresArms()
	}
	writer := outbox.NewWriter(d.plain, nil)
	insert := fmt.Sprintf(insertEventSQL, marks("?", 12))
	with := func(more func(ctx context.Context, tx store.SQLTx, e waybill.Event) error) transact {
		return func(ctx context.Context, account int, e waybill.Event) error {
			tx, err := d.db.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			defer func() { _ = tx.Rollback() }()
			if _, err := tx.ExecContext(ctx, fmt.Sprintf(updateAccountSQL, account)); err != nil {
				return err
			}
			if err := more(ctx, tx, e); err != nil {
				return err
			}
			return tx.Commit()
		}
	}
	return []transact{
		with(func(context.Context, store.SQLTx, waybill.Event) error { return nil }),
		with(func(ctx context.Context, tx store.SQLTx, e waybill.Event) error {
			_, err := tx.ExecContext(ctx, insert, d.columns(&e)...)
			return err
		}),
		with(func(ctx context.Context, tx store.SQLTx, e waybill.Event) error { return writer.Append(ctx, tx, e) }),
	}
}

// columns are the values of insertEventSQL.
func (d *database) columns(e *waybill.Event) []any {
	at := now().UTC()
	values := []any{
		e.ID, e.TenantID, e.AggregateType, e.AggregateID, e.AggregateVersion, e.Type, 1, e.Topic, e.AggregateID,
		e.Data, "application/json", at,
	}
	if d.kind == kindSQLite {
		values[11] = at.Format("2006-01-02T15:04:05.000000Z")
	}
	return values
}

func (d *database) postgresArms() []transact {
	writer := outbox.NewCommitWriter(d.pg, nil)
	insert := fmt.Sprintf(insertEventSQL, "$1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12")
	with := func(more func(ctx context.Context, tx pgx.Tx, e waybill.Event) error) transact {
		return func(ctx context.Context, account int, e waybill.Event) error {
			tx, err := d.pg.Begin(ctx)
			if err != nil {
				return err
			}
			defer func() { _ = tx.Rollback(ctx) }()
			if _, err := tx.Exec(ctx, fmt.Sprintf(updateAccountSQL, account)); err != nil {
				return err
			}
			return more(ctx, tx, e)
		}
	}
	return []transact{
		with(func(ctx context.Context, tx pgx.Tx, _ waybill.Event) error { return tx.Commit(ctx) }),
		with(func(ctx context.Context, tx pgx.Tx, e waybill.Event) error {
			if _, err := tx.Exec(ctx, insert, d.columns(&e)...); err != nil {
				return err
			}
			return tx.Commit(ctx)
		}),
		with(func(ctx context.Context, tx pgx.Tx, e waybill.Event) error {
			if err := writer.Append(ctx, tx, e); err != nil {
				return err
			}
			return tx.Commit(ctx)
		}),
		with(func(ctx context.Context, tx pgx.Tx, e waybill.Event) error { return writer.AppendCommit(ctx, tx, e) }),
	}
}

func (r *AppendReport) sum() {
	mid := func(figure func(*AppendRun) float64, digits int) float64 {
		return round(median(of(r.Each, figure)), digits)
	}
	r.Update = mid(func(n *AppendRun) float64 { return n.Update }, 0)
	r.Insert = mid(func(n *AppendRun) float64 { return n.Insert }, 0)
	r.Append = mid(func(n *AppendRun) float64 { return n.Append }, 0)
	r.AppendRatio = mid(func(n *AppendRun) float64 { return ratio(n.Append, n.Insert) }, 3)
	r.Commit = mid(func(n *AppendRun) float64 { return n.Commit }, 0)
	r.CommitRatio = mid(func(n *AppendRun) float64 { return ratio(n.Commit, n.Append) }, 3)
}

// Text shows the report to people.
func (r *AppendReport) Text() string {
	var b strings.Builder
	heading(&b, "append", &r.Host, &r.Versions)
	fmt.Fprintf(&b, "%d runs of %d transactions, %d writers, %d bytes\n\n", r.Runs, r.Events, r.Writers, r.PayloadBytes)
	line(&b, "business row alone", "%10s", perSecond(r.Update))
	line(&b, "and INSERT by hand", "%10s", perSecond(r.Insert))
	line(&b, "and Append", "%10s  %.2f of INSERT", perSecond(r.Append), r.AppendRatio)
	if r.Commit > 0 {
		line(&b, "and AppendCommit", "%10s  %.2f of Append", perSecond(r.Commit), r.CommitRatio)
	}
	return b.String()
}
