package ops

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/waybillhq/waybill/broker"
	"github.com/waybillhq/waybill/store"
)

// ReadBackGroup is the consumer group of a [ReadBack] that names none.
const ReadBackGroup = "waybill-receipts"

// ReadBackConfig adjusts a [ReadBack]. Nil means all defaults.
type ReadBackConfig struct {
	// Group is the consumer group. Empty means [ReadBackGroup]. Several processes
	// of one group share the partitions, where the broker does that.
	Group string
	// LookEvery is how often the outbox is asked who delivers, and for new
	// topics. 0 means 2 s.
	LookEvery time.Duration
	// Logger may be nil.
	Logger *slog.Logger
	// Confirmed, where set, is told of every batch that was read.
	Confirmed func(ConfirmedInfo)
}

// ConfirmedInfo tells of records that were read back.
type ConfirmedInfo struct {
	Records  int // read
	Receipts int // written for them
}

// String implements fmt.Stringer.
func (i ConfirmedInfo) String() string {
	return fmt.Sprintf("read %d, confirmed %d", i.Records, i.Receipts)
}

// ReadBack reads the topics to which another program sends an outbox's events,
// and writes their receipts. So trace, cleanup and reconciliation work as if a
// relay had sent them. While relays deliver, it does nothing.
type ReadBack struct {
	store      store.External
	subscriber broker.Subscriber
	config     ReadBackConfig
	logger     *slog.Logger
}

// NewReadBack returns a reader that is to be run.
func NewReadBack(st store.External, subscriber broker.Subscriber, config *ReadBackConfig) *ReadBack {
	r := &ReadBack{store: st, subscriber: subscriber}
	if config != nil {
		r.config = *config
	}
	if r.config.Group == "" {
		r.config.Group = ReadBackGroup
	}
	if r.config.LookEvery <= 0 {
		r.config.LookEvery = 2 * time.Second
	}
	if r.logger = r.config.Logger; r.logger == nil {
		r.logger = slog.New(slog.DiscardHandler)
	}
	return r
}

const (
	readBackBatch   = 1000
	readBackWait    = 200 * time.Millisecond
	readBackPause   = time.Second
	readBackOverlap = 10_000 // ids that may become visible late
)

// Run reads until ctx ends, whatever fails meanwhile: it tries again.
func (r *ReadBack) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		err := r.round(ctx)
		wait := r.config.LookEvery
		if err != nil && ctx.Err() == nil {
			r.logger.Warn("reading back failed, to be repeated", "error", err)
			wait = readBackPause
		}
		if !rest(ctx, wait) {
			break
		}
	}
	return nil
}

// round reads for as long as another program delivers and the topics stay the
// same ones. It returns nil when there is nothing to read.
func (r *ReadBack) round(ctx context.Context) error {
	delivery, err := r.store.Delivery(ctx)
	if err != nil || !delivery.External {
		return err
	}
	topics, last, err := r.store.EventTopics(ctx, delivery.Cut)
	if err != nil || len(topics) == 0 {
		return err
	}
	subscription, err := r.subscriber.Subscribe(ctx, broker.SubscribeRequest{Group: r.config.Group, Topics: topics})
	if err != nil {
		return err
	}
	defer func() { _ = subscription.Close() }()
	if err := assignAll(ctx, subscription); err != nil {
		return err
	}
	r.logger.Info("topics are read back", "topics", topics, "above", delivery.Cut)
	looked := now()
	for {
		if _, err := r.poll(ctx, subscription); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return nil
		}
		if since := now().Sub(looked); since < r.config.LookEvery {
			continue
		}
		looked = now()
		present, err := r.store.Delivery(ctx)
		if err != nil || present != delivery {
			return err
		}
		more, newest, err := r.store.EventTopics(ctx, max(delivery.Cut, last-readBackOverlap))
		if err != nil {
			return err
		}
		last = newest
		if slices.ContainsFunc(more, func(topic string) bool { return !slices.Contains(topics, topic) }) {
			return nil // to begin again with all of them
		}
	}
}

// poll confirms one batch and returns how many records it had. Positions are
// stored after the receipts.
func (r *ReadBack) poll(ctx context.Context, subscription broker.Subscription) (int, error) {
	deliveries, err := subscription.Poll(ctx, readBackBatch, readBackWait)
	if err != nil || len(deliveries) == 0 {
		return 0, err
	}
	settled := make(map[broker.Partition]int64)
	confirmations := make([]store.Confirmation, 0, len(deliveries))
	for i := range deliveries {
		d := &deliveries[i]
		partition := broker.Partition{Topic: d.Record.Topic, ID: d.Partition}
		settled[partition] = max(settled[partition], d.Position)
		if d.Record.EventID != "" {
			confirmations = append(confirmations, store.Confirmation{
				EventID: d.Record.EventID, PublishedTo: broker.Place(d.Record.Topic, d.Partition, d.Position),
			})
		}
	}
	written, err := r.store.Confirm(ctx, confirmations)
	if err != nil {
		return 0, err
	}
	positions := make([]broker.Position, 0, len(settled))
	for partition, position := range settled {
		positions = append(positions, broker.Position{Partition: partition, Settled: position})
	}
	if err := subscription.Commit(ctx, positions); err != nil {
		return 0, err
	}
	if r.config.Confirmed != nil {
		r.config.Confirmed(ConfirmedInfo{Records: len(deliveries), Receipts: written})
	}
	return len(deliveries), nil
}

// assignAll takes all partitions where the broker leaves that to its readers.
func assignAll(ctx context.Context, subscription broker.Subscription) error {
	assigner, ok := subscription.(broker.Assigner)
	if !ok {
		return nil
	}
	partitions, err := assigner.Partitions(ctx)
	if err != nil {
		return err
	}
	return assigner.Assign(ctx, partitions)
}

// CatchUp reads the topics until nothing new has come for a while, so that what
// another program has sent before it stopped is confirmed. It is for the moment
// before the delivery is taken back, and reads beside a [ReadBack] that runs.
func (r *ReadBack) CatchUp(ctx context.Context, quiet time.Duration) error {
	delivery, err := r.store.Delivery(ctx)
	if err != nil || !delivery.External {
		return err
	}
	topics, _, err := r.store.EventTopics(ctx, delivery.Cut)
	if err != nil || len(topics) == 0 {
		return err
	}
	// A group of its own shares the partitions with nobody, and reads everything
	// that it has not read before, whatever another group left unread.
	alone := r.config.Group + "-switch"
	subscription, err := r.subscriber.Subscribe(ctx, broker.SubscribeRequest{Group: alone, Topics: topics})
	if err != nil {
		return err
	}
	defer func() { _ = subscription.Close() }()
	if err := assignAll(ctx, subscription); err != nil {
		return err
	}
	heard := false
	for last := now(); ctx.Err() == nil; {
		n, err := r.poll(ctx, subscription)
		switch {
		case err != nil:
			return err
		case n > 0:
			last, heard = now(), true
		case now().Sub(last) > quiet:
			unconfirmed, err := r.store.Unconfirmed(ctx)
			if err == nil && !heard && unconfirmed.Events > 0 && now().Sub(last) < 5*quiet {
				continue // joining a group takes its time
			}
			return err
		}
	}
	return errors.Join(ctx.Err())
}
