package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// options are what the command was told.
type options struct {
	part       string
	store      string // URL of PostgreSQL, or of MySQL
	storePID   int    // its first process
	kafka      string // address
	delayed    string // address that Kafka is also known by, of which a proxy is made
	proxied    string // address of the listener behind it
	connect    string // URL of Kafka Connect
	connectPID int
	waybill    string // the binary
	self       string // this one
	arms       []string
	runs       int
	events     int
	slow       int // the share of the events that slow arms get is one part in so many
	warm       int // events that Debezium gets first
	keys       int
	payload    int
	rate       int
	measured   int
	burst      int
	compressed bool
	delay      time.Duration
}

// armCommand is the word by which this command starts itself for one arm.
const armCommand = "__arm"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	if len(os.Args) > 1 && os.Args[1] == armCommand {
		return serveArm(ctx, os.Stdin, os.Stdout)
	}
	o, err := parse(os.Args[1:])
	if err != nil {
		return err
	}
	r, err := o.do(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("%s%s after\n", r.text, "load "+load())
	return nil
}

func parse(words []string) (*options, error) {
	o := &options{}
	flags := flag.NewFlagSet("peers", flag.ContinueOnError)
	arms := strings.Join([]string{armWaybill, armForget, armLoop, armStatus, armOneByOne, armWatermill, armDebezium}, ",")
	flags.StringVar(&o.store, "store", "", "URL of PostgreSQL or, parts latency and burst, MySQL or MariaDB, of an account that may create databases and read the log")
	flags.IntVar(&o.storePID, "store-pid", 0, "process of the database's server, whose processor time counts; 0: it is not known")
	flags.StringVar(&o.kafka, "kafka", "", "address of Kafka")
	flags.StringVar(&o.delayed, "delayed", "", "part delayed: address under which Kafka announces its proxied listener")
	flags.StringVar(&o.proxied, "proxied", "", "part delayed: address of that listener")
	flags.StringVar(&o.connect, "connect", "", "URL of Kafka Connect")
	flags.IntVar(&o.connectPID, "connect-pid", 0, "process of Kafka Connect")
	flags.StringVar(&o.waybill, "waybill", "", "the waybill binary")
	flags.StringVar(&arms, "arms", arms, "who takes part, the first being what the others are compared with")
	flags.IntVar(&o.runs, "runs", 3, "how often each arm runs")
	flags.IntVar(&o.events, "events", 100_000, "events of a drain")
	flags.IntVar(&o.slow, "slow", 20, "by how much fewer they are for arms that send one record at a time")
	flags.IntVar(&o.warm, "warm", 300_000, "events that Debezium drains before it is measured")
	flags.IntVar(&o.keys, "keys", 10_000, "among how many keys the events are spread")
	flags.IntVar(&o.payload, "payload", 250, "bytes of data in an event")
	flags.IntVar(&o.rate, "rate", 500, "part latency: events per second")
	flags.IntVar(&o.measured, "measured", 5000, "part latency: events of a run")
	flags.DurationVar(&o.delay, "delay", 2*time.Millisecond, "part delayed: for how long answers are held back")
	flags.IntVar(&o.burst, "burst", 1_000_000, "part burst: events of the one transaction")
	flags.BoolVar(&o.compressed, "compressed", false, "part burst: have MySQL compress its log")
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), "peers [flags] drain|delayed|latency|burst\n\n")
		flags.PrintDefaults()
	}
	if err := flags.Parse(words); err != nil {
		return nil, err
	}
	o.part, o.arms = flags.Arg(0), strings.Split(arms, ",")
	if strings.HasPrefix(o.store, kindMySQL+":") && o.part != "latency" && o.part != "burst" {
		return nil, fmt.Errorf("on MySQL only latency and a burst are measured")
	}
	if o.store == "" || o.kafka == "" || o.waybill == "" {
		return nil, fmt.Errorf("-store, -kafka and -waybill are needed; test/bench/peers/run gives them")
	}
	var err error
	o.self, err = os.Executable()
	return o, err
}

func (o *options) do(ctx context.Context) (*report, error) {
	switch o.part {
	case "drain":
		return drain(ctx, o, o.kafka)
	case "delayed":
		p, err := newProxy(ctx, o.delayed, o.proxied, o.delay)
		if err != nil {
			return nil, err
		}
		defer p.close()
		return drain(ctx, o, o.delayed)
	case "latency":
		return latency(ctx, o)
	case "burst":
		return burst(ctx, o)
	}
	return nil, fmt.Errorf("what is to be measured: drain, delayed, latency or burst")
}
