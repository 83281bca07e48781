package promwaybill

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waybillhq/waybill/reconcile"
)

// ReconcileResults is what [NewReconcile] asks.
type ReconcileResults interface {
	// Standing says how a check stands now.
	Standing(ctx context.Context, check string) (*reconcile.Standing, error)
}

// Reconcile tells of reconciliation when it is scraped, whichever process runs
// the checks. It is a [prometheus.Collector].
type Reconcile struct {
	results ReconcileResults
	checks  []*reconcile.Check
	timeout time.Duration

	up, findings, decided, age, overdue, stalled, running, last, keys *prometheus.Desc
}

// NewReconcile returns a collector for checks, complete with their defaults
// ([reconcile.Check.Complete]). timeout bounds one scrape; 0 means 5 s.
func NewReconcile(results ReconcileResults, checks []*reconcile.Check, timeout time.Duration) *Reconcile {
	if timeout <= 0 {
		timeout = 5 * time.Second
	}
	describe := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("waybill_reconcile_"+name, help, append([]string{"check"}, labels...), nil)
	}
	return &Reconcile{
		results: results, checks: checks, timeout: timeout,
		up:       describe("up", "1 when the results of the check could be read; else none of its other figures is there."),
		findings: describe("findings", "Open findings, confirmed and not decided about, by class.", "class"),
		decided:  describe("findings_decided", "Findings that are not resolved, and that somebody has decided about, by state: ignored, awaiting_verdict.", "state"),
		age:      describe("coverage_age_seconds", "How long ago the last change was made that is known to have been compared, by kind: window (recent changes), full (all keys). Not there where nothing is covered yet.", "kind"),
		overdue:  describe("run_overdue", "1 when no run has ended for longer than three intervals."),
		stalled:  describe("coverage_stalled", "1 when runs do not cover what they should."),
		running:  describe("running", "1 while a run is at work."),
		last:     describe("last_run_timestamp_seconds", "When the last complete run of recent changes, or of all keys, ended."),
		keys:     describe("last_run_keys", "Keys that this run has compared."),
	}
}

// Describe implements [prometheus.Collector].
func (r *Reconcile) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{r.up, r.findings, r.decided, r.age, r.overdue, r.stalled, r.running, r.last, r.keys} {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (r *Reconcile) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), r.timeout)
	defer cancel()
	for _, check := range r.checks {
		r.collect(ctx, check, func(d *prometheus.Desc, value float64, labels ...string) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, append([]string{check.Name}, labels...)...)
		})
	}
}

func (r *Reconcile) collect(ctx context.Context, check *reconcile.Check, send func(d *prometheus.Desc, value float64, labels ...string)) {
	standing, err := r.results.Standing(ctx, check.Name)
	if err != nil {
		send(r.up, 0)
		return
	}
	send(r.up, 1)
	for class, n := range standing.Open {
		send(r.findings, float64(n), string(class))
	}
	send(r.decided, float64(standing.Ignored), "ignored")
	send(r.decided, float64(standing.Awaiting), "awaiting_verdict")
	definition := check.Definition()
	for _, covered := range standing.Coverage {
		if covered.Definition == definition {
			send(r.age, standing.Now.Sub(covered.Until).Seconds(), string(covered.Kind))
		}
	}
	for _, condition := range check.Conditions(standing) {
		switch condition.Name {
		case reconcile.AlertOverdue:
			send(r.overdue, truth(condition.Firing))
		case reconcile.AlertStalled:
			send(r.stalled, truth(condition.Firing))
		}
	}
	send(r.running, truth(standing.Running != ""))
	if done := standing.LastDone; done != nil && done.FinishedAt != nil {
		send(r.last, float64(done.FinishedAt.UnixMilli())/1000)
		send(r.keys, float64(done.Keys))
	}
}

func truth(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
