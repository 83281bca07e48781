package bench

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
)

// ReconcileOptions are those of [Reconcile].
type ReconcileOptions struct {
	Options          // Broker, Events and Payload do not matter
	ReadStore string // URL of the read model's server; empty: the same database
	Log       string // LogOutbox or LogOwn
	Versions  int    // of each key
	Profile   string // folder for profiles of the last comparison
}

// The logs.
const (
	LogOutbox = "outbox" // this module's
	LogOwn    = "own"    // a table of an application, with a word for the state in each row
)

// check says what is wrong with the options.
func (o *ReconcileOptions) check() error {
	o.Broker, o.Events, o.Payload = kindNone, 1, leastPayload
	if o.Versions < 1 {
		return optionError("--versions", errors.New("less than 1"), "")
	}
	if _, _, err := storeOf(o.ReadStore); err != nil {
		return err
	}
	return o.Check()
}

// ReconcileReport is what "bench reconcile" found: medians of the runs.
type ReconcileReport struct {
	Host        Host     `json:"host"`
	Versions    Versions `json:"versions"`
	ReadVersion string   `json:"read_version"` // kind and version of the read model's database

	Log            string `json:"log"`              // outbox: this module's tables; own: one table with a state column
	Runs           int    `json:"runs"`             // how often each arm ran, in turns
	Keys           int    `json:"keys"`             // in each of the three tables
	VersionsPerKey int    `json:"versions_per_key"` // events of each key in the log

	KeysPerS       float64 `json:"keys_per_s"`         // three-way comparison
	WriteKeysPerS  float64 `json:"write_keys_per_s"`   // one ordered read of the business table, by itself
	LogKeysPerS    float64 `json:"log_keys_per_s"`     // the same of the log
	ReadKeysPerS   float64 `json:"read_keys_per_s"`    // the same of the read model
	AtOnceKeysPerS float64 `json:"at_once_keys_per_s"` // all three at once by the comparison's reader, which then does nothing with them
	Ratio          float64 `json:"ratio"`              // median of each run's comparison / slowest ordered read
	AtOnceRatio    float64 `json:"at_once_ratio"`      // the same of comparison / the three at once
	RSSMB          float64 `json:"rss_mb"`             // most memory of the comparing process, in 2^20 bytes
	CPUMicros      float64 `json:"cpu_us"`             // processor time of the comparing process for each key, in microseconds

	Each []ReconcileRun `json:"each"` // the runs
}

// ReconcileRun is one run of all arms.
type ReconcileRun struct {
	KeysPerS       float64 `json:"keys_per_s"`         // as in the report
	WriteKeysPerS  float64 `json:"write_keys_per_s"`   // as in the report
	LogKeysPerS    float64 `json:"log_keys_per_s"`     // as in the report
	ReadKeysPerS   float64 `json:"read_keys_per_s"`    // as in the report
	AtOnceKeysPerS float64 `json:"at_once_keys_per_s"` // as in the report
	Ratio          float64 `json:"ratio"`              // as in the report
	AtOnceRatio    float64 `json:"at_once_ratio"`      // as in the report
	RSSMB          float64 `json:"rss_mb"`             // as in the report
	CPUMicros      float64 `json:"cpu_us"`             // as in the report
}

// ledger is where the three tables are.
type ledger struct {
	write, read *site
	db, readDB  *database
}

// Reconcile measures how fast three tables are compared, beside an ordered
// read of each.
func Reconcile(ctx context.Context, o *ReconcileOptions) (*ReconcileReport, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	report := &ReconcileReport{Host: newHost(), Versions: newVersions(), Log: o.Log, Runs: o.Runs, Keys: o.Keys, VersionsPerKey: o.Versions}
	report.Versions.Broker = kindNone
	l, err := newLedger(ctx, o)
	if err == nil {
		report.Versions.Store, report.ReadVersion = l.db.version(ctx), l.readDB.version(ctx)
		report.Each, err = repeat(o.Runs, func(n int) (*ReconcileRun, error) { return l.run(ctx, o, n) })
	}
	if err = errors.Join(err, l.leave(ctx)); err != nil {
		return nil, err
	}
	report.Host.LoadEnd = load()
	report.sum()
	return report, nil
}

// newLedger makes the tables and fills them. What it returns is to be left also
// when there is an error.
func newLedger(ctx context.Context, o *ReconcileOptions) (l *ledger, err error) {
	l = &ledger{}
	if l.write, err = newSite(ctx, o.Store); err != nil {
		return l, err
	}
	if l.db, err = openDatabase(ctx, l.write.kind, l.write.dsn); err != nil {
		return l, err
	}
	l.readDB = l.db
	if o.ReadStore != "" {
		if l.read, err = newSite(ctx, o.ReadStore); err != nil {
			return l, err
		}
		if l.readDB, err = openDatabase(ctx, l.read.kind, l.read.dsn); err != nil {
			return l, err
		}
	}
	if o.Log == LogOutbox {
		if err = l.db.store.Migrate(ctx, store.MigrateOptions{SkipInbox: true, NoTrigger: true}); err != nil {
			return l, err
		}
	}
	return l, l.fill(ctx, o)
}

func (l *ledger) leave(ctx context.Context) error {
	var errs []error
	if l.readDB != nil && l.readDB != l.db {
		errs = append(errs, l.readDB.close())
	}
	if l.db != nil {
		errs = append(errs, l.db.close())
	}
	for _, s := range []*site{l.write, l.read} {
		if s != nil {
			errs = append(errs, s.leave(ctx))
		}
	}
	return errors.Join(errs...)
}

// run runs the arms once; which one comes first changes from run to run.
func (l *ledger) run(ctx context.Context, o *ReconcileOptions, n int) (*ReconcileRun, error) {
	compare := task{Arm: armReconcile, Store: l.write.kind, DSN: l.write.dsn, Compare: &comparison{Log: o.Log, Keys: o.Keys}}
	compare.Compare.ReadStore, compare.Compare.ReadDSN = l.write.kind, l.write.dsn
	if l.read != nil {
		compare.Compare.ReadStore, compare.Compare.ReadDSN = l.read.kind, l.read.dsn
	}
	arms := []task{compare}
	for _, side := range []string{sideWrite, sideLog, sideRead, sideAll} {
		scan := compare
		c := *compare.Compare
		c.Side = side
		scan.Arm, scan.Compare = armScan, &c
		arms = append(arms, scan)
	}
	if n == o.Runs-1 {
		arms[0].Profile = o.Profile
	}
	results := make([]*outcome, len(arms))
	for i := range arms {
		i = (i + n) % len(arms)
		var err error
		if results[i], err = o.do(ctx, arms[i]); err != nil {
			return nil, err
		}
		if results[i].Events != o.Keys {
			return nil, &waybill.Error{Op: "bench", Err: fmt.Errorf("%s: %d keys, want %d", arms[i].Arm, results[i].Events, o.Keys)}
		}
		o.say("run %d of %d: %-9s %-5s %10s %6.2f us %6.1f MB", n+1, o.Runs, arms[i].Arm, arms[i].Compare.Side, keysPerSecond(results[i].rate()), results[i].cpuPerEvent(), results[i].PeakMB)
	}
	all, slowest := results[0], min(results[1].rate(), results[2].rate(), results[3].rate())
	return &ReconcileRun{
		KeysPerS: round(all.rate(), 0), WriteKeysPerS: round(results[1].rate(), 0), LogKeysPerS: round(results[2].rate(), 0), ReadKeysPerS: round(results[3].rate(), 0),
		AtOnceKeysPerS: round(results[4].rate(), 0), AtOnceRatio: round(ratio(all.rate(), results[4].rate()), 3),
		Ratio: round(ratio(all.rate(), slowest), 3), RSSMB: round(all.PeakMB, 1), CPUMicros: round(all.cpuPerEvent(), 2),
	}, nil
}

func keysPerSecond(rate float64) string { return fmt.Sprintf("%.0f keys/s", rate) }

func (r *ReconcileReport) sum() {
	mid := func(figure func(*ReconcileRun) float64, digits int) float64 {
		return round(median(of(r.Each, figure)), digits)
	}
	r.KeysPerS = mid(func(n *ReconcileRun) float64 { return n.KeysPerS }, 0)
	r.WriteKeysPerS = mid(func(n *ReconcileRun) float64 { return n.WriteKeysPerS }, 0)
	r.LogKeysPerS = mid(func(n *ReconcileRun) float64 { return n.LogKeysPerS }, 0)
	r.ReadKeysPerS = mid(func(n *ReconcileRun) float64 { return n.ReadKeysPerS }, 0)
	r.AtOnceKeysPerS = mid(func(n *ReconcileRun) float64 { return n.AtOnceKeysPerS }, 0)
	r.AtOnceRatio = mid(func(n *ReconcileRun) float64 { return n.AtOnceRatio }, 3)
	r.Ratio = mid(func(n *ReconcileRun) float64 { return n.Ratio }, 3)
	r.RSSMB = mid(func(n *ReconcileRun) float64 { return n.RSSMB }, 1)
	r.CPUMicros = mid(func(n *ReconcileRun) float64 { return n.CPUMicros }, 2)
}

// Text shows the report to people.
func (r *ReconcileReport) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "reconcile: rows and log in %s, read model in %s\n", r.Versions.Store, r.ReadVersion)
	h := &r.Host
	fmt.Fprintf(&b, "waybill %s, %s; %s, %d cores of %s, %.0f GB, load %.1f before and %.1f after\n",
		r.Versions.Waybill, r.Versions.Go, h.System, h.Cores, orNone(h.Processor), h.MemoryGB, h.Load, h.LoadEnd)
	fmt.Fprintf(&b, "%d runs of %d keys, %d events of each in the log (%s)\n\n", r.Runs, r.Keys, r.VersionsPerKey, r.Log)
	line(&b, "three-way comparison", "%16s  %5.2f us of processor, %.1f MB", keysPerSecond(r.KeysPerS), r.CPUMicros, r.RSSMB)
	line(&b, "ordered read of rows", "%16s", keysPerSecond(r.WriteKeysPerS))
	line(&b, "  of the log", "%16s", keysPerSecond(r.LogKeysPerS))
	line(&b, "  of the read model", "%16s", keysPerSecond(r.ReadKeysPerS))
	line(&b, "  of all three at once", "%16s", keysPerSecond(r.AtOnceKeysPerS))
	line(&b, "ratio to the slowest", "%11.2f", r.Ratio)
	line(&b, "  to all three at once", "%11.2f", r.AtOnceRatio)
	return b.String()
}
