package main

import (
	"os"

	"github.com/waybillhq/waybill/cmd/waybill/internal/bench"
	"github.com/waybillhq/waybill/cmd/waybill/internal/logging"
)

type benchCmd struct {
	Append    benchAppendCmd    `cmd:"" help:"What an event costs the transaction that writes it, beside an INSERT by hand."`
	Relay     benchRelayCmd     `cmd:"" help:"How fast a relay drains a queue, beside a loop that is written by hand."`
	Latency   benchLatencyCmd   `cmd:"" help:"How long an event takes from its commit to a consumer."`
	Scale     benchScaleCmd     `cmd:"" help:"What the size of the tables, held keys and a reader with an old snapshot cost the relay."`
	Reconcile benchReconcileCmd `cmd:"" help:"How fast three tables are compared, beside an ordered read of each."`

	Consume benchConsumeCmd `cmd:"" help:"How fast a consumer applies events, beside a loop without an inbox."`

	Arm benchArmCmd `cmd:"" name:"__arm" hidden:""`
}

// benchFlags are those of every noun.
type benchFlags struct {
	Store   string `placeholder:"URL" env:"WAYBILL_BENCH_STORE" help:"Server to measure on, postgres://, mysql:// or mariadb://, in a database made for the purpose and dropped at the end. Default: a SQLite file."`
	Broker  string `placeholder:"URL" env:"WAYBILL_BENCH_BROKER" help:"Broker, kafka:// or nats://, with a topic of its own; or none, which accepts everything at once. Default: a NATS server in this process."`
	Runs    int    `default:"3" help:"How often each arm runs, in turns with the others. Figures are medians."`
	Keys    int    `default:"10000" help:"Among how many keys the events are spread."`
	Payload int    `default:"250" help:"Bytes of data in an event."`
	JSON    bool   `name:"json" help:"Print JSON; the progress goes to standard error."`
}

func (f *benchFlags) options(a *app, events int) (bench.Options, error) {
	binary, err := os.Executable()
	if err != nil {
		return bench.Options{}, err
	}
	a.hide(f.Store, f.Broker)
	o := bench.Options{Store: f.Store, Broker: f.Broker, Runs: f.Runs, Events: events, Keys: f.Keys, Payload: f.Payload, Binary: binary}
	if logging.IsTerminal(a.stderr) || f.JSON {
		o.Progress = a.stderr
	}
	if err := o.Check(); err != nil {
		return o, usageError{err}
	}
	return o, nil
}

// report prints what a bench found.
func (f *benchFlags) report(a *app, report interface{ Text() string }) error {
	if f.JSON {
		return a.printJSON(report)
	}
	return a.print(report.Text())
}

type benchRelayCmd struct {
	benchFlags
	Events  int    `default:"100000" help:"How many events each arm drains in each run."`
	Mode    string `enum:"keep,forget,both" default:"keep" help:"What becomes of settled events: ${enum}, for the relay and for the loop; both adds a relay that forgets beside one that keeps."`
	Format  string `enum:"raw,envelope,cloudevents" default:"raw" help:"Wire format of the relay's records, ${enum}. The loop's are raw."`
	Profile string `placeholder:"DIR" type:"existingdir" help:"Leave cpu.prof and allocs.prof of the relay's last run in this folder."`
}

// Help has the examples.
func (benchRelayCmd) Help() string {
	return `A queue is filled and drained by a relay with its default settings, filled again and drained by a loop that takes a batch in
order of ids, sends it and settles it in one transaction; and so on. Each runs in a process of its own.

Examples:

	waybill bench relay
	waybill bench relay --events 20000 --runs 1 --json
	waybill bench relay --store postgres://app:secret@localhost/postgres --broker kafka://localhost:9092 --mode both`
}

func (c *benchRelayCmd) Run(a *app) error {
	o, err := c.options(a, c.Events)
	if err != nil {
		return err
	}
	report, err := bench.Relay(a.ctx, &bench.RelayOptions{Options: o, Mode: c.Mode, Format: c.Format, Profile: c.Profile})
	if err != nil {
		return err
	}
	return c.report(a, report)
}

type benchReconcileCmd struct {
	Store     string `placeholder:"URL" env:"WAYBILL_BENCH_STORE" help:"Server of the rows and the log, postgres://, mysql:// or mariadb://, in a database made for the purpose and dropped at the end. Default: a SQLite file."`
	ReadStore string `placeholder:"URL" env:"WAYBILL_BENCH_READ_STORE" help:"Server of the read model. Default: beside the rows."`
	Log       string `enum:"outbox,own" default:"outbox" help:"Which log, ${enum}: waybill's own tables, or one table with a column for the state."`
	Keys      int    `default:"200000" help:"How many keys each table has."`
	Versions  int    `default:"1" help:"How many events of each key the log has."`
	Runs      int    `default:"3" help:"How often each arm runs, in turns with the others. Figures are medians."`
	Profile   string `placeholder:"DIR" type:"existingdir" help:"Leave cpu.prof and allocs.prof of the last comparison in this folder."`
	JSON      bool   `name:"json" help:"Print JSON; the progress goes to standard error."`
}

// Help has the examples.
func (benchReconcileCmd) Help() string {
	return `Three tables are filled so that they are equal. Then they are compared, and each is read by itself in the order of its keys, in turns.
The ratio says how much of the speed of the slowest read the comparison of all three has. Each runs in a process of its own.
All three are also read at once, and nothing is done with them: on a machine that the database shares, no comparison can be faster than that.

Examples:

	waybill bench reconcile
	waybill bench reconcile --keys 20000 --runs 1 --json
	waybill bench reconcile --keys 5000000 --store postgres://app:secret@localhost/postgres --read-store mysql://app:secret@localhost/mysql`
}

func (c *benchReconcileCmd) Run(a *app) error {
	binary, err := os.Executable()
	if err != nil {
		return err
	}
	a.hide(c.Store, c.ReadStore)
	o := &bench.ReconcileOptions{Options: bench.Options{Store: c.Store, Runs: c.Runs, Keys: c.Keys, Binary: binary}, ReadStore: c.ReadStore, Log: c.Log, Versions: c.Versions, Profile: c.Profile}
	if logging.IsTerminal(a.stderr) || c.JSON {
		o.Progress = a.stderr
	}
	report, err := bench.Reconcile(a.ctx, o)
	if err != nil {
		return err
	}
	return (&benchFlags{JSON: c.JSON}).report(a, report)
}

type benchConsumeCmd struct {
	benchFlags
	Events  int    `default:"20000" help:"How many events each arm consumes in each run."`
	Gate    string `enum:"next,latest,none" default:"next" help:"The consumer's version gate, ${enum}."`
	Workers int    `default:"0" help:"How many transactions the consumer has at once; 0 means its default."`
	Batch   int    `default:"500" help:"How many events one transaction has at most, the loop's too."`
	Poison  bool   `help:"Measure a third arm, with one key whose handler always fails."`
	Profile string `placeholder:"DIR" type:"existingdir" help:"Leave cpu.prof and allocs.prof of the consumer's last run in this folder."`
}

// Help has the examples.
func (benchConsumeCmd) Help() string {
	return `A topic is filled. A consumer reads it and writes a row for each key, with its default settings; a loop reads it again and does the same
with one transaction for each batch, but no inbox: it would do everything twice after a crash. Each runs in a process of its own.

Examples:

	waybill bench consume
	waybill bench consume --keys 1000 --poison
	waybill bench consume --store postgres://app:secret@localhost/postgres --broker kafka://localhost:9092 --events 100000`
}

func (c *benchConsumeCmd) Run(a *app) error {
	o, err := c.options(a, c.Events)
	if err != nil {
		return err
	}
	report, err := bench.Consume(a.ctx, &bench.ConsumeOptions{
		Options: o, Gate: c.Gate, Workers: c.Workers, Batch: c.Batch, Poison: c.Poison, Profile: c.Profile,
	})
	if err != nil {
		return err
	}
	return c.report(a, report)
}

// benchArmCmd is one arm of a bench, started by it.
type benchArmCmd struct{}

func (benchArmCmd) Run(a *app) error { return bench.RunArm(a.ctx, os.Stdin, a.stdout) }
