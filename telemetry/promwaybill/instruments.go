package promwaybill

import "github.com/prometheus/client_golang/prometheus"

// instruments make metrics of one subsystem and remember them, so that a
// collector describes and collects them all.
type instruments struct {
	subsystem string
	constant  prometheus.Labels
	all       []prometheus.Collector
}

func (i *instruments) counter(name, help string, labels ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "waybill", Subsystem: i.subsystem, Name: name, Help: help, ConstLabels: i.constant,
	}, labels)
	i.all = append(i.all, c)
	return c
}

func (i *instruments) gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: "waybill", Subsystem: i.subsystem, Name: name, Help: help, ConstLabels: i.constant,
	}, labels)
	i.all = append(i.all, g)
	return g
}

// From half a millisecond, a write to a local disk, to an hour of waiting.
var buckets = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 3600}

func (i *instruments) histogram(name, help string, labels ...string) *prometheus.HistogramVec {
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: "waybill", Subsystem: i.subsystem, Name: name, Help: help, ConstLabels: i.constant, Buckets: buckets,
	}, labels)
	i.all = append(i.all, h)
	return h
}

// Describe implements [prometheus.Collector].
func (i *instruments) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range i.all {
		c.Describe(ch)
	}
}

// Collect implements [prometheus.Collector].
func (i *instruments) Collect(ch chan<- prometheus.Metric) {
	for _, c := range i.all {
		c.Collect(ch)
	}
}
