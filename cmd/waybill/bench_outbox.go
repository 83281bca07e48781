package main

import "github.com/waybillhq/waybill/cmd/waybill/internal/bench"

type benchAppendCmd struct {
	benchFlags
	Events  int `default:"4000" help:"Transactions of each arm in each run."`
	Writers int `default:"8" help:"Connections that write at the same time."`
}

// Help has the examples.
func (benchAppendCmd) Help() string {
	return `Writers each change a row of their own and add one event, in one transaction: by an INSERT written by hand, by Append, and on
PostgreSQL by AppendCommit. The arms take turns within a run. No broker is involved.

Examples:

	waybill bench append
	waybill bench append --store postgres://app:secret@localhost/postgres --writers 16 --json`
}

func (c *benchAppendCmd) Run(a *app) error {
	o, err := c.options(a, c.Events)
	if err != nil {
		return err
	}
	report, err := bench.Append(a.ctx, &bench.AppendOptions{Options: o, Writers: c.Writers})
	if err != nil {
		return err
	}
	return c.report(a, report)
}

type benchLatencyCmd struct {
	benchFlags
	Events int `default:"5000" help:"How many events are measured in each run."`
	Rate   int `default:"500" help:"Events per second."`
}

// Help has the examples.
func (benchLatencyCmd) Help() string {
	return `Transactions with one event each are committed at a steady rate. A relay in a process of its own sends the events, and a
consumer here notes when it has them. The time runs from the answer to the COMMIT.

Examples:

	waybill bench latency
	waybill bench latency --store mysql://app:secret@localhost/ --broker kafka://localhost:9092 --rate 1000 --json`
}

func (c *benchLatencyCmd) Run(a *app) error {
	o, err := c.options(a, c.Events)
	if err != nil {
		return err
	}
	report, err := bench.Latency(a.ctx, &bench.LatencyOptions{Options: o, Rate: c.Rate})
	if err != nil {
		return err
	}
	return c.report(a, report)
}

type benchScaleCmd struct {
	benchFlags
	Events   int `default:"50000" help:"How many events each drain drains, and of the small tables whose claims are timed."`
	Settled  int `default:"1000000" help:"Settled events of the large tables."`
	Pending  int `default:"100000" help:"Queued events of the large tables."`
	HeldKeys int `default:"5000" help:"Keys with a dead event."`
	HeldRows int `default:"100" help:"Events of each such key, which wait."`
}

// Help has the examples.
func (benchScaleCmd) Help() string {
	return `Four sets of tables: a small one, one with many settled events and a long queue, one with keys that cannot go on, and one whose
queue is drained while a transaction keeps a snapshot from before. Claims are timed in the first two, drains in the others.

Examples:

	waybill bench scale
	waybill bench scale --store postgres://app:secret@localhost/postgres --settled 10000000 --pending 1000000 --broker none --json`
}

func (c *benchScaleCmd) Run(a *app) error {
	o, err := c.options(a, c.Events)
	if err != nil {
		return err
	}
	report, err := bench.Scale(a.ctx, &bench.ScaleOptions{
		Options: o, Settled: c.Settled, Pending: c.Pending, HeldKeys: c.HeldKeys, HeldRows: c.HeldRows,
	})
	if err != nil {
		return err
	}
	return c.report(a, report)
}
