package bench

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
)

// ScaleOptions are those of [Scale]. Events is what each drain drains, and the
// queue of the small tables whose claims are timed.
type ScaleOptions struct {
	Options
	Settled  int // events with a receipt in the large tables
	Pending  int // events in the queue of the large tables
	HeldKeys int // keys that cannot go on
	HeldRows int // events of each of them
}

// ScaleReport is what "bench scale" found: medians of the runs.
type ScaleReport struct {
	Host     Host     `json:"host"`
	Versions Versions `json:"versions"`

	Runs         int `json:"runs"`          // how often everything was measured, in turns
	Events       int `json:"events"`        // of each drain, and in the small tables
	Settled      int `json:"settled"`       // settled events in the large tables
	Pending      int `json:"pending"`       // queued events in the large tables
	HeldKeys     int `json:"held_keys"`     // keys with a dead event, whose other events wait behind it
	HeldRows     int `json:"held_rows"`     // events of each such key
	PayloadBytes int `json:"payload_bytes"` // data of one event

	ClaimSmall float64 `json:"claim_small_ms"` // finding and loading 1,000 events of the small tables
	ClaimLarge float64 `json:"claim_large_ms"` // the same of the large ones
	ClaimRatio float64 `json:"claim_ratio"`    // median of each run's large / small

	Plain       float64 `json:"plain_events_per_s"`  // a relay's drain of the small tables
	Held        float64 `json:"held_events_per_s"`   // the same beside the held keys
	HeldRatio   float64 `json:"held_ratio"`          // median of each run's held / plain
	Reader      float64 `json:"reader_events_per_s"` // the same while a transaction keeps a snapshot from before the drain
	ReaderRatio float64 `json:"reader_ratio"`        // median of each run's reader / plain

	Each []ScaleRun `json:"each"` // the runs
}

// ScaleRun is one run.
type ScaleRun struct {
	ClaimSmall float64 `json:"claim_small_ms"`      // as in the report
	ClaimLarge float64 `json:"claim_large_ms"`      // as in the report
	Plain      float64 `json:"plain_events_per_s"`  // as in the report
	Held       float64 `json:"held_events_per_s"`   // as in the report
	Reader     float64 `json:"reader_events_per_s"` // as in the report
}

// scale has four sets of tables.
type scale struct {
	*bench
	o                          *ScaleOptions
	plain, held, reader, large *tables
}

// tables are a set of their own.
type tables struct {
	site *site
	db   *database
	from *source
	task task
}

// Scale measures what the size of the tables, keys that cannot go on, and a
// reader with an old snapshot cost.
func Scale(ctx context.Context, o *ScaleOptions) (*ScaleReport, error) {
	if o.Settled < 1 || o.Pending < claimRows || o.Events < claimRows || o.HeldKeys < 1 || o.HeldRows < 1 {
		return nil, optionError("bench scale", errors.New("too few"), fmt.Sprintf("give at least %d events and pending, and one of each of the others", claimRows))
	}
	b, err := newBench(ctx, &o.Options)
	if err != nil {
		return nil, err
	}
	report := &ScaleReport{
		Host: b.host, Versions: b.versions, Runs: o.Runs, Events: o.Events, Settled: o.Settled, Pending: o.Pending,
		HeldKeys: o.HeldKeys, HeldRows: o.HeldRows, PayloadBytes: o.Payload,
	}
	s := &scale{bench: b, o: o, plain: &tables{site: b.site, db: b.db, from: b.source, task: b.task(armRelay)}}
	if err = s.prepare(ctx); err == nil {
		report.Each, err = repeat(o.Runs, func(int) (*ScaleRun, error) { return s.run(ctx) })
	}
	if err = errors.Join(err, s.leaveAll(ctx)); err != nil {
		return nil, err
	}
	report.Host.LoadEnd = load()
	report.sum()
	return report, nil
}

func (s *scale) prepare(ctx context.Context) (err error) {
	for _, one := range []**tables{&s.held, &s.reader, &s.large} {
		if *one, err = s.another(ctx); err != nil {
			return err
		}
	}
	s.o.say("filling %d held keys with %d events each", s.o.HeldKeys, s.o.HeldRows)
	if err := s.fillHeld(ctx); err != nil {
		return err
	}
	s.o.say("filling %d settled and %d pending events", s.o.Settled, s.o.Pending)
	return s.fillLarge(ctx)
}

func (s *scale) another(ctx context.Context) (t *tables, err error) {
	t = &tables{from: newSource(s.house.topic, s.options), task: s.task(armRelay)}
	if t.site, err = newSite(ctx, s.options.Store); err != nil {
		return nil, err
	}
	if t.db, err = openDatabase(ctx, t.site.kind, t.site.dsn); err != nil {
		return t, err
	}
	t.task.DSN = t.site.dsn
	return t, t.db.store.Migrate(ctx, store.MigrateOptions{SkipInbox: true})
}

func (s *scale) leaveAll(ctx context.Context) error {
	var errs []error
	for _, t := range []*tables{s.held, s.reader, s.large} {
		if t == nil {
			continue
		}
		if t.db != nil {
			errs = append(errs, t.db.close())
		}
		errs = append(errs, t.site.leave(ctx))
	}
	return errors.Join(append(errs, s.leave(ctx))...)
}

const (
	parkAllSQL  = `UPDATE outbox_pending SET parked = %s`
	killHeadSQL = `UPDATE outbox_pending SET status = 'DEAD', first_error = 'refused', last_error = 'refused' WHERE id <= %d`
)

// fillHeld leaves the state that a relay leaves when it has found the first
// event of each key to be dead.
func (s *scale) fillHeld(ctx context.Context) error {
	held := newSource(s.house.topic, s.options)
	held.keys, held.prefix = s.o.HeldKeys, "held"
	if err := s.held.db.fill(ctx, held, s.o.HeldKeys*s.o.HeldRows); err != nil {
		return err
	}
	yes := "true"
	if s.held.db.pool == nil {
		yes = "1"
	}
	for _, statement := range []string{fmt.Sprintf(parkAllSQL, yes), fmt.Sprintf(killHeadSQL, s.o.HeldKeys)} {
		if _, err := s.held.db.db.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return s.held.db.tidy(ctx)
}

const eventColumns = `tenant_id, aggregate_type, aggregate_id, aggregate_version, event_type, event_version, topic, event_key, payload, content_type`

// Doubling is the one way of making many rows that all databases know. The
// trigger queues them; the queue is emptied before what is to be pending comes.
var doubleSQL = statements{
	kindPostgres: `INSERT INTO outbox_event (event_id, ` + eventColumns + `) SELECT '%[1]d-' || event_id, ` + eventColumns + ` FROM outbox_event ORDER BY id LIMIT %[2]d`,
	kindSQLite:   `INSERT INTO outbox_event (event_id, ` + eventColumns + `) SELECT '%[1]d-' || event_id, ` + eventColumns + ` FROM outbox_event ORDER BY id LIMIT %[2]d`,
	kindMySQL:    `INSERT INTO outbox_event (event_id, ` + eventColumns + `) SELECT CONCAT('%[1]d-', event_id), ` + eventColumns + ` FROM outbox_event ORDER BY id LIMIT %[2]d`,
}

const (
	settleAllSQL = `INSERT INTO outbox_receipt (id, event_id, outcome, via, published_to, note) SELECT id, event_id, 'SENT', 'poll', topic, '' FROM outbox_event`
	emptyQueue   = `DELETE FROM outbox_pending`
)

func (s *scale) fillLarge(ctx context.Context) error {
	d := s.large.db
	if err := d.fill(ctx, s.large.from, min(s.o.Settled, fillBatch)); err != nil {
		return err
	}
	for have, round := min(s.o.Settled, fillBatch), 0; have < s.o.Settled; round++ {
		// In steps, so that the transaction and the queue stay bounded.
		part := min(have, s.o.Settled-have, doubleStep)
		if _, err := d.db.ExecContext(ctx, fmt.Sprintf(doubleSQL.of(d.kind), round, part)); err != nil {
			return err
		}
		if _, err := d.db.ExecContext(ctx, emptyQueue); err != nil {
			return err
		}
		have += part
	}
	for _, statement := range []string{emptyQueue, settleAllSQL} {
		if _, err := d.db.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return d.fill(ctx, s.large.from, s.o.Pending)
}

const doubleStep = 200_000

func (s *scale) run(ctx context.Context) (*ScaleRun, error) {
	if err := s.plain.db.fill(ctx, s.plain.from, s.o.Events); err != nil {
		return nil, err
	}
	run := &ScaleRun{}
	var err error
	if run.ClaimSmall, run.ClaimLarge, err = s.claims(ctx); err != nil {
		return nil, err
	}
	if run.Plain, err = s.drain(ctx, s.plain); err != nil {
		return nil, err
	}
	if err := s.held.db.fill(ctx, s.held.from, s.o.Events); err != nil {
		return nil, err
	}
	if run.Held, err = s.drain(ctx, s.held); err != nil {
		return nil, err
	}
	if run.Reader, err = s.drainBesideReader(ctx); err != nil {
		return nil, err
	}
	s.o.say("claim %.2f and %.2f ms; drain %s, beside held keys %s, beside a reader %s", run.ClaimSmall, run.ClaimLarge, perSecond(run.Plain), perSecond(run.Held), perSecond(run.Reader))
	return run, nil
}

func (s *scale) drain(ctx context.Context, t *tables) (float64, error) {
	t.task.Events, t.task.Format = s.o.Events, string(waybill.FormatRaw)
	result, err := s.o.do(ctx, t.task)
	if err != nil {
		return 0, err
	}
	return round(result.rate(), 0), nil
}

const (
	claimRows  = 1000
	claimTimes = 15
)

// claims times claims of both tables in turns.
func (s *scale) claims(ctx context.Context) (small, large float64, err error) {
	var times [2][]float64
	for range claimTimes {
		for i, t := range []*tables{s.plain, s.large} {
			began := now()
			n, err := claim(ctx, t.db.store)
			if err != nil {
				return 0, 0, err
			}
			if n < claimRows/2 {
				return 0, 0, fmt.Errorf("%d rows were claimed of at least %d", n, claimRows)
			}
			times[i] = append(times[i], 1000*since(began))
		}
	}
	return round(median(times[0]), 2), round(median(times[1]), 2), nil
}

// claim finds and loads rows as a relay with all lanes does.
func claim(ctx context.Context, queue store.Queue) (int, error) {
	request := store.WalkRequest{Limit: claimRows, Lanes: make([]store.LaneCursor, store.Lanes)}
	for i := range request.Lanes {
		request.Lanes[i] = store.LaneCursor{Lane: i, Limit: (claimRows + store.Lanes - 1) / store.Lanes}
	}
	walked, err := queue.Walk(ctx, request)
	if err != nil {
		return 0, err
	}
	ids := make([]int64, len(walked.Refs))
	for i, ref := range walked.Refs {
		ids[i] = ref.ID
	}
	slices.Sort(ids)
	loaded, err := queue.Load(ctx, ids, 0)
	return len(loaded.Rows), err
}

// drainBesideReader drains while a transaction keeps its snapshot.
func (s *scale) drainBesideReader(ctx context.Context) (float64, error) {
	if err := s.reader.db.fill(ctx, s.reader.from, s.o.Events); err != nil {
		return 0, err
	}
	end, err := s.reader.db.snapshot(ctx)
	if err != nil {
		return 0, err
	}
	defer end()
	return s.drain(ctx, s.reader)
}

const (
	beginSQL    = `BEGIN` // in SQLite a transaction that reads keeps its snapshot, and one of Go's begins by writing
	rollbackSQL = `ROLLBACK`
)

// snapshot begins a transaction that goes on seeing what there is now.
func (d *database) snapshot(ctx context.Context) (end func(), err error) {
	var n int
	if d.kind == kindSQLite {
		conn, err := d.db.Conn(ctx)
		if err != nil {
			return nil, err
		}
		if _, err = conn.ExecContext(ctx, beginSQL); err == nil {
			err = conn.QueryRowContext(ctx, countEventsSQL).Scan(&n)
		}
		return func() {
			_, _ = conn.ExecContext(context.WithoutCancel(ctx), rollbackSQL)
			_ = conn.Close()
		}, err
	}
	tx, err := d.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return nil, err
	}
	return func() { _ = tx.Rollback() }, tx.QueryRowContext(ctx, countEventsSQL).Scan(&n)
}

func (r *ScaleReport) sum() {
	mid := func(figure func(*ScaleRun) float64, digits int) float64 {
		return round(median(of(r.Each, figure)), digits)
	}
	r.ClaimSmall = mid(func(n *ScaleRun) float64 { return n.ClaimSmall }, 2)
	r.ClaimLarge = mid(func(n *ScaleRun) float64 { return n.ClaimLarge }, 2)
	r.ClaimRatio = mid(func(n *ScaleRun) float64 { return ratio(n.ClaimLarge, n.ClaimSmall) }, 3)
	r.Plain = mid(func(n *ScaleRun) float64 { return n.Plain }, 0)
	r.Held = mid(func(n *ScaleRun) float64 { return n.Held }, 0)
	r.HeldRatio = mid(func(n *ScaleRun) float64 { return ratio(n.Held, n.Plain) }, 3)
	r.Reader = mid(func(n *ScaleRun) float64 { return n.Reader }, 0)
	r.ReaderRatio = mid(func(n *ScaleRun) float64 { return ratio(n.Reader, n.Plain) }, 3)
}

// Text shows the report to people.
func (r *ScaleReport) Text() string {
	var b strings.Builder
	heading(&b, "scale", &r.Host, &r.Versions)
	fmt.Fprintf(&b, "%d runs, %d bytes\n\n", r.Runs, r.PayloadBytes)
	line(&b, "claim of 1,000", "%7.2f ms with %d pending", r.ClaimSmall, r.Events)
	line(&b, "", "%7.2f ms with %d settled and %d pending: %.2f of that", r.ClaimLarge, r.Settled, r.Pending, r.ClaimRatio)
	line(&b, "drain", "%10s", perSecond(r.Plain))
	line(&b, "beside held keys", "%10s  %.2f, %d keys of %d events", perSecond(r.Held), r.HeldRatio, r.HeldKeys, r.HeldRows)
	line(&b, "beside a reader", "%10s  %.2f", perSecond(r.Reader), r.ReaderRatio)
	return b.String()
}
