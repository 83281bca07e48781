package relay

import (
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/cdc"
	"github.com/waybillhq/waybill/store"
)

// OnDead says what becomes of a key whose event is DEAD.
type OnDead string

// The two policies.
const (
	// Hold keeps the key's later events back until a person retries or skips
	// the dead one.
	Hold OnDead = "hold"
	// Continue lets the key go on without it.
	Continue OnDead = "continue"
)

// TopicConfig is what can differ from topic to topic.
type TopicConfig struct {
	Format waybill.Format // default FormatEnvelope
	OnDead OnDead         // default Hold
}

// Config adjusts a [Relay]. The zero value of each field, and a nil Config,
// mean the defaults.
type Config struct {
	// Host names this process to people. Default "hostname:pid".
	Host string
	// LeaseTTL is how long a lane stays owned after its last renewal. Default 10 s.
	LeaseTTL time.Duration
	// RenewEvery is the pace of renewals. Default 3/10 of LeaseTTL.
	RenewEvery time.Duration
	// Grace bounds the drain when Run's context ends. Default 20 s.
	Grace time.Duration
	// FetchBatch is the most rows of one read. Default 1,000.
	FetchBatch int
	// PublishBatch is the most records of one Publish call. Default 500.
	PublishBatch int
	// Concurrency is the most Publish calls at once. Default 4.
	Concurrency int
	// PublishTimeout bounds one Publish call. Default 10 s.
	PublishTimeout time.Duration
	// PollBusy is the time from the beginning of a read that found the queue's end to
	// the next, while events come all the time: those of PollBusy are sent together.
	// PollIdle is the longest pause between two reads that found nothing new. Defaults
	// 8 ms and 50 ms.
	PollBusy, PollIdle time.Duration
	// SweepEvery is the pace of full sweeps. Default 1 minute.
	SweepEvery time.Duration
	// MaxAttempts is after how many failures of its own an event is DEAD. Default 12.
	MaxAttempts int
	// BackoffMin and BackoffMax bound the pause after a failure; it doubles from
	// one to the other, with full jitter. Defaults 200 ms and 5 minutes.
	BackoffMin, BackoffMax time.Duration
	// MaxRows and MaxBytes bound what is known at once, in rows and in bytes of
	// data. Defaults 10,000 and 64 MiB.
	MaxRows, MaxBytes int
	// Source is the database's own log, which tells of commits without being asked.
	// nil: the relay polls.
	Source cdc.Source
	// Mode is what the relay does where no mode was set for all of them with
	// [store.Positions]: store.ModePoll, the default, or store.ModeCDC, which needs
	// a Source.
	Mode string
	// Heartbeat is the pace at which the log is marked, to see how far behind it
	// is, and the position in it saved. A log that shows nothing for that long is
	// not relied on. Default 5 s.
	Heartbeat time.Duration
	// Forget deletes events on confirmation, instead of writing a receipt.
	Forget bool
	// Default holds for topics that Topics does not name.
	Default TopicConfig
	Topics  map[string]TopicConfig
	// Events are called as things happen, from one goroutine.
	Events Events
	// Logger defaults to slog.Default().
	Logger *slog.Logger
}

func (c *Config) withDefaults() (Config, error) {
	var out Config
	if c != nil {
		out = *c
	}
	if out.Host == "" {
		name, err := os.Hostname()
		if err != nil {
			name = "unknown"
		}
		out.Host = fmt.Sprintf("%s:%d", name, os.Getpid())
	}
	for _, d := range []struct {
		field *time.Duration
		name  string
		value time.Duration
	}{
		{&out.LeaseTTL, "LeaseTTL", 10 * time.Second},
		{&out.Grace, "Grace", 20 * time.Second},
		{&out.PublishTimeout, "PublishTimeout", 10 * time.Second},
		{&out.PollBusy, "PollBusy", 8 * time.Millisecond},
		{&out.PollIdle, "PollIdle", 50 * time.Millisecond},
		{&out.SweepEvery, "SweepEvery", time.Minute},
		{&out.Heartbeat, "Heartbeat", 5 * time.Second},
		{&out.BackoffMin, "BackoffMin", 200 * time.Millisecond},
		{&out.BackoffMax, "BackoffMax", 5 * time.Minute},
	} {
		if *d.field < 0 {
			return out, configError("%s is negative", d.name)
		}
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	if out.RenewEvery == 0 {
		out.RenewEvery = out.LeaseTTL * 3 / 10
	}
	for _, n := range []struct {
		field *int
		name  string
		value int
	}{
		{&out.FetchBatch, "FetchBatch", 1000},
		{&out.PublishBatch, "PublishBatch", 500},
		{&out.Concurrency, "Concurrency", 4},
		{&out.MaxAttempts, "MaxAttempts", 12},
		{&out.MaxRows, "MaxRows", 10_000},
		{&out.MaxBytes, "MaxBytes", 64 << 20},
	} {
		if *n.field < 0 {
			return out, configError("%s is negative", n.name)
		}
		if *n.field == 0 {
			*n.field = n.value
		}
	}
	if out.RenewEvery < 0 || out.RenewEvery > out.LeaseTTL/2 {
		return out, configError("RenewEvery %v must be at most half of LeaseTTL %v", out.RenewEvery, out.LeaseTTL)
	}
	if out.PollBusy > out.PollIdle {
		return out, configError("PollBusy %v is longer than PollIdle %v", out.PollBusy, out.PollIdle)
	}
	if out.BackoffMin > out.BackoffMax {
		return out, configError("BackoffMin %v is longer than BackoffMax %v", out.BackoffMin, out.BackoffMax)
	}
	switch out.Mode {
	case "":
		out.Mode = store.ModePoll
	case store.ModePoll:
	case store.ModeCDC:
		if out.Source == nil {
			return out, configError("Mode %s needs a Source", out.Mode)
		}
	default:
		return out, configError("Mode %q: %w", out.Mode, store.ErrUnknownMode)
	}
	var err error
	if out.Default, err = out.Default.withDefaults("default"); err != nil {
		return out, err
	}
	topics := make(map[string]TopicConfig, len(out.Topics))
	for name, topic := range out.Topics {
		if topic.Format == "" {
			topic.Format = out.Default.Format
		}
		if topic.OnDead == "" {
			topic.OnDead = out.Default.OnDead
		}
		if topics[name], err = topic.withDefaults(name); err != nil {
			return out, err
		}
	}
	out.Topics = topics
	if out.Logger == nil {
		out.Logger = slog.Default()
	}
	return out, nil
}

func (t TopicConfig) withDefaults(name string) (TopicConfig, error) {
	if t.Format == "" {
		t.Format = waybill.FormatEnvelope
	}
	if t.OnDead == "" {
		t.OnDead = Hold
	}
	switch t.Format {
	case waybill.FormatEnvelope, waybill.FormatCloudEvents, waybill.FormatRaw:
	default:
		return t, configError("topic %s: unknown format %q", name, t.Format)
	}
	if t.OnDead != Hold && t.OnDead != Continue {
		return t, configError("topic %s: on_dead is %q, want %q or %q", name, t.OnDead, Hold, Continue)
	}
	return t, nil
}

func (c *Config) topic(name string) TopicConfig {
	if t, ok := c.Topics[name]; ok {
		return t
	}
	return c.Default
}

func configError(format string, args ...any) error {
	return &waybill.Error{Op: "configure relay", Err: fmt.Errorf(format, args...)}
}
