package promwaybill

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/waybillhq/waybill/inbox"
	"github.com/waybillhq/waybill/store"
)

// Consumer counts what one processor does. It is a [prometheus.Collector].
type Consumer struct {
	instruments
	topics *topics

	handled                         *prometheus.CounterVec // by topic and result
	took                            *prometheus.HistogramVec
	applied, duplicates, setAside   *prometheus.CounterVec
	dead, outOfOrder, conflicts     *prometheus.CounterVec
	batches                         *prometheus.HistogramVec
	events                          *prometheus.CounterVec
	lag, oldestUnconsumed           *prometheus.GaugeVec
	held, oldestHeld                *prometheus.GaugeVec
	paused, partitions              *prometheus.GaugeVec
	lost, troubles, positionsStored *prometheus.CounterVec
	gaps                            *prometheus.CounterVec
	age                             *prometheus.HistogramVec
}

// NewConsumer returns a collector for one group, to be fed by
// [Consumer.Events].
func NewConsumer(group string, config *Config) *Consumer {
	c := &Consumer{
		instruments: instruments{subsystem: "consumer", constant: prometheus.Labels{"group": group}}, topics: newTopics(config),
	}
	c.handled = c.counter("handled_total", "Runs of the handler, by result: ok, error, panic, timeout. The success rate is ok / all.", "topic", "result")
	c.took = c.histogram("handler_seconds", "Time of one run of the handler.", "topic")
	c.applied = c.counter("settled_total", "Events settled for the first time, by outcome: APPLIED, STALE, SKIPPED.", "topic", "outcome")
	c.duplicates = c.counter("duplicates_total", "Events that came again and were absorbed.", "topic")
	c.setAside = c.counter("held_total", "Events set aside, or failed again, by the state they are in then.", "topic", "state")
	c.dead = c.counter("dead_letters_total", "Events that died here.", "topic")
	c.outOfOrder = c.counter("out_of_order_total", "Events that came after a higher version of their aggregate.", "topic")
	c.gaps = c.counter("gaps_total", "Gaps in the versions of an aggregate that were older than the deadline; each is counted once by each process.", "topic")
	c.conflicts = c.counter("conflicts_total", "Transactions that died and were done again.")
	c.batches = c.histogram("batch_seconds", "Time of one committed transaction.")
	c.events = c.counter("batch_events_total", "Events in committed transactions.")
	c.age = c.histogram("delivery_seconds", "Time from the broker's storing a record until its event was settled.", "topic")
	c.lag = c.gauge("lag_seconds", "Age, at its commit, of the oldest record in the latest transaction.")
	c.oldestUnconsumed = c.gauge("oldest_unconsumed_seconds", "Age of the oldest record that was received and is not settled; see WatchHealth.")
	c.held = c.gauge("held", "Events that the group keeps aside, by state; RETRY is the length of the retry queue.", "state")
	c.oldestHeld = c.gauge("oldest_held_seconds", "Age of the oldest event kept aside.")
	c.paused = c.gauge("paused", "1 while the handler fails for every key and the processor rests.")
	c.partitions = c.gauge("partitions", "Partitions that this process reads.")
	c.lost = c.counter("partitions_lost_total", "Partitions taken away without having been given up.")
	c.positionsStored = c.counter("positions_committed_total", "Positions that the broker stored.")
	c.troubles = c.counter("troubles_total", "Failures of what the processor stands on, by source.", "source")
	for _, g := range []*prometheus.GaugeVec{c.lag, c.oldestUnconsumed, c.oldestHeld, c.paused, c.partitions} {
		g.WithLabelValues().Set(0)
	}
	for _, n := range []*prometheus.CounterVec{c.conflicts, c.lost, c.events, c.positionsStored} {
		n.WithLabelValues()
	}
	return c
}

// Events returns hooks that count and then tell next.
func (c *Consumer) Events(next inbox.Events) inbox.Events {
	return inbox.Events{
		Handled: func(i inbox.HandledInfo) {
			topic := c.topics.label(i.Event.Topic)
			c.handled.WithLabelValues(topic, result(&i)).Inc()
			c.took.WithLabelValues(topic).Observe(i.Took.Seconds())
			tell(next.Handled, i)
		},
		Applied: func(i inbox.AppliedInfo) {
			topic := c.topics.label(i.Partition.Topic)
			c.applied.WithLabelValues(topic, string(i.Outcome)).Inc()
			if !i.FromHeld {
				c.age.WithLabelValues(topic).Observe(i.Age.Seconds())
			}
			tell(next.Applied, i)
		},
		Duplicate: func(i inbox.DuplicateInfo) {
			c.duplicates.WithLabelValues(c.topics.label(i.Partition.Topic)).Inc()
			tell(next.Duplicate, i)
		},
		Held: func(i inbox.HeldInfo) {
			topic := c.topics.label(i.Event.Topic)
			c.setAside.WithLabelValues(topic, string(i.State)).Inc()
			if i.State == store.HeldDead {
				c.dead.WithLabelValues(topic).Inc()
			}
			tell(next.Held, i)
		},
		OutOfOrder: func(i inbox.OutOfOrderInfo) {
			c.outOfOrder.WithLabelValues(c.topics.label(i.Event.Topic)).Inc()
			tell(next.OutOfOrder, i)
		},
		Conflict: func(i inbox.ConflictInfo) {
			c.conflicts.WithLabelValues().Inc()
			tell(next.Conflict, i)
		},
		Batch: func(i inbox.BatchInfo) {
			c.batches.WithLabelValues().Observe(i.Took.Seconds())
			c.events.WithLabelValues().Add(float64(i.Events))
			c.lag.WithLabelValues().Set(i.OldestAge.Seconds())
			tell(next.Batch, i)
		},
		Committed: func(i inbox.CommittedInfo) {
			c.positionsStored.WithLabelValues().Add(float64(len(i.Positions)))
			tell(next.Committed, i)
		},
		Counted: func(i inbox.CountedInfo) {
			c.count(&i)
			tell(next.Counted, i)
		},
		Paused: func(i inbox.PausedInfo) {
			c.paused.WithLabelValues().Set(oneIf(i.On))
			tell(next.Paused, i)
		},
		Readers: func(i inbox.ReadersInfo) {
			c.partitions.WithLabelValues().Set(float64(len(i.Partitions)))
			c.lost.WithLabelValues().Add(float64(len(i.Lost)))
			tell(next.Readers, i)
		},
		Gap: func(i inbox.GapInfo) {
			c.gaps.WithLabelValues(c.topics.label(i.Gap.Topic)).Inc()
			tell(next.Gap, i)
		},
		Trouble: func(i inbox.TroubleInfo) {
			c.troubles.WithLabelValues(i.Source).Inc()
			tell(next.Trouble, i)
		},
	}
}

// WatchHealth makes each scrape ask for the age of the oldest record that was
// received and is not settled: pass the processor's Health. It is called before
// the collector is registered.
func (c *Consumer) WatchHealth(health func() inbox.Health) {
	c.all = append(c.all, beforeScrape(func() {
		c.oldestUnconsumed.WithLabelValues().Set(health().OldestUnconsumed.Seconds())
	}))
	// It goes first, so that the gauge is fresh when it is collected.
	last := len(c.all) - 1
	c.all[0], c.all[last] = c.all[last], c.all[0]
}

func (c *Consumer) count(i *inbox.CountedInfo) {
	for state, n := range map[store.HeldState]int64{
		store.HeldWaiting: i.Waiting, store.HeldBlocked: i.Blocked, store.HeldRetry: i.Retry, store.HeldDead: i.Dead,
	} {
		c.held.WithLabelValues(string(state)).Set(float64(n))
	}
	c.oldestHeld.WithLabelValues().Set(i.OldestAge.Seconds())
}

func result(i *inbox.HandledInfo) string {
	switch {
	case i.Err == nil:
		return "ok"
	case i.TimedOut:
		return "timeout"
	case i.Panicked:
		return "panic"
	}
	return "error"
}

func oneIf(on bool) float64 {
	if on {
		return 1
	}
	return 0
}

// beforeScrape is a collector of nothing that does something.
type beforeScrape func()

// Describe implements [prometheus.Collector].
func (beforeScrape) Describe(chan<- *prometheus.Desc) {}

// Collect implements [prometheus.Collector].
func (b beforeScrape) Collect(chan<- prometheus.Metric) { b() }
