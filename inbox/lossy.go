package inbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
)

// LossyConfig adjusts a [LossyProcessor]. Group and Topics are required.
type LossyConfig struct {
	Group  string
	Topics []string
	// PollWait bounds one wait for records. 0 means 500 ms.
	PollWait time.Duration
	// Lost is told of each event that is lost because its handler failed, or
	// because it could not be decoded; it then has the id "" and the topic alone.
	Lost func(event waybill.Event, err error)
	// Logger gets what people should know. nil means slog.Default.
	Logger *slog.Logger
}

// LossyProcessor tells the broker that events are done with before it handles
// them: each is handled at most once, and what fails, or is under way when the
// process ends, is LOST. There is no database, no retry, and no dead letter.
//
// It suits what the next event makes good: a live display, a cache that may be
// dropped. For everything else take a [Processor].
type LossyProcessor struct {
	sub     broker.Subscriber
	handler func(ctx context.Context, event waybill.Event) error
	config  LossyConfig
}

// NewLossy returns a processor that loses events. A broker whose partitions are
// shared by leases in a database, as NATS has it, is refused by Run.
func NewLossy(sub broker.Subscriber, handler func(ctx context.Context, event waybill.Event) error, config *LossyConfig) (*LossyProcessor, error) {
	if sub == nil || handler == nil || config == nil {
		return nil, &waybill.Error{Op: "configure consumer", Err: errors.New("subscriber, handler and config are all required")}
	}
	// What is checked of a processor's group and topics holds here too.
	full := Config{Group: config.Group, Topics: config.Topics, PollWait: config.PollWait, Logger: config.Logger}.withDefaults()
	if err := full.check(); err != nil {
		return nil, err
	}
	p := &LossyProcessor{sub: sub, handler: handler, config: *config}
	p.config.PollWait, p.config.Logger, p.config.Topics = full.PollWait, full.Logger, full.Topics
	return p, nil
}

// Run consumes until ctx ends; the handler that runs then may finish.
func (p *LossyProcessor) Run(ctx context.Context) error {
	subscription, err := p.sub.Subscribe(ctx, broker.SubscribeRequest{Group: p.config.Group, Topics: p.config.Topics})
	if err != nil {
		return err
	}
	defer func() { _ = subscription.Close() }()
	if _, shared := subscription.(broker.Assigner); shared {
		return &waybill.Error{
			Op: "run consumer", Key: p.config.Group, Err: errors.New("this broker shares partitions by leases, which need a database"),
			Hint: "use a Processor",
		}
	}
	for failures := 0; ctx.Err() == nil; {
		deliveries, err := subscription.Poll(ctx, 500, p.config.PollWait)
		if err == nil && len(deliveries) > 0 {
			err = subscription.Commit(ctx, done(deliveries))
		}
		switch {
		case ctx.Err() != nil:
		case err != nil:
			// What was polled and not committed comes again by itself at the latest
			// to the next process, so it is not handled here: never twice.
			failures++
			p.config.Logger.Warn("broker does not answer", "error", err)
			for i := range deliveries {
				p.lose(&deliveries[i].Record, err)
			}
			pauseFor(ctx, backoff(failures, retryFirst, retryLast))
		default:
			failures = 0
			for i := range deliveries {
				p.handle(ctx, &deliveries[i].Record)
			}
		}
	}
	return nil
}

// done covers all that was delivered.
func done(deliveries []broker.Delivery) []broker.Position {
	last := make(map[broker.Partition]int64)
	for _, d := range deliveries {
		last[broker.Partition{Topic: d.Record.Topic, ID: d.Partition}] = d.Position
	}
	positions := make([]broker.Position, 0, len(last))
	for partition, position := range last {
		positions = append(positions, broker.Position{Partition: partition, Settled: position})
	}
	return positions
}

func (p *LossyProcessor) handle(ctx context.Context, record *waybill.Record) {
	event, err := waybill.Decode(record)
	if err != nil {
		p.lose(record, err)
		return
	}
	if event.IsSkipMarker() {
		return
	}
	err = func() (err error) {
		defer func() {
			if v := recover(); v != nil {
				err = fmt.Errorf("%w: %v", ErrHandlerPanic, v)
			}
		}()
		return p.handler(context.WithoutCancel(ctx), event)
	}()
	if err != nil {
		p.lost(event, err)
	}
}

func (p *LossyProcessor) lose(record *waybill.Record, err error) {
	event, decodeErr := waybill.Decode(record)
	if decodeErr != nil {
		event = waybill.Event{Topic: record.Topic, Key: record.Key}
	}
	p.lost(event, err)
}

func (p *LossyProcessor) lost(event waybill.Event, err error) {
	p.config.Logger.Warn("event lost", "event", event.ID, "topic", event.Topic, "error", err)
	if p.config.Lost != nil {
		p.config.Lost(event, err)
	}
}
