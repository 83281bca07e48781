package ops

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
)

// CleanupConfig adjusts [Cleanup]. Nil means all defaults.
type CleanupConfig struct {
	// Retention is the age at which settled events, with their receipts, may
	// go. 0 means 30 days.
	Retention time.Duration
	// InboxRetention is the age at which a group may forget what it consumed.
	// It must be longer than the broker can deliver a record again. 0 means 30 days.
	InboxRetention time.Duration
	// Groups are the consumer groups to clean up for. Empty means none.
	Groups []string
	// Batch bounds the rows removed by one statement. Fewer are, where the
	// database takes longer than some milliseconds for them. 0 means 1,000.
	Batch int
	// Pause is the least rest between two batches; it is longer after one that
	// took long. 0 means 50 ms.
	Pause time.Duration
	// Every is the rest between two rounds. 0 means 10 minutes.
	Every time.Duration
	// Archive copies events to the archive before they go.
	Archive bool
	// Below, where set, is asked before each round for the id up to which
	// others have read the events; that id and greater ones stay. Returning 0
	// means that nothing may go.
	Below func(ctx context.Context) (int64, error)
	// Logger gets one line per round that removed something or failed. Nil
	// means none.
	Logger *slog.Logger
}

// Cleanup removes settled events, and what consumers need not remember, batch by
// batch. It never touches an event that is in the queue or has no receipt.
type Cleanup struct {
	outbox   store.Cleaner
	consumer store.Forgetter
	config   CleanupConfig
}

// Removed counts what one round of a [Cleanup] removed.
type Removed struct {
	Events   int `json:"events"`
	Consumed int `json:"consumed"`
}

// NewCleanup returns a cleanup of an outbox, of the consumer's tables, or of
// both; nil leaves one out. Groups need the consumer's.
func NewCleanup(outbox store.Cleaner, consumer store.Forgetter, config *CleanupConfig) (*Cleanup, error) {
	c := &Cleanup{outbox: outbox, consumer: consumer}
	if config != nil {
		c.config = *config
	}
	if c.config.Retention < 0 || c.config.InboxRetention < 0 || c.config.Batch < 0 || c.config.Pause < 0 || c.config.Every < 0 {
		return nil, &waybill.Error{Op: "configure cleanup", Err: errors.New("a negative value")}
	}
	if consumer == nil && len(c.config.Groups) > 0 {
		return nil, &waybill.Error{Op: "configure cleanup", Err: errors.New("there are groups, and no tables of a consumer")}
	}
	const thirtyDays = 30 * 24 * time.Hour
	c.config.Retention = orDefault(c.config.Retention, thirtyDays)
	c.config.InboxRetention = orDefault(c.config.InboxRetention, thirtyDays)
	c.config.Pause = orDefault(c.config.Pause, 50*time.Millisecond)
	c.config.Every = orDefault(c.config.Every, 10*time.Minute)
	c.config.Batch = orDefault(c.config.Batch, 1000)
	if c.config.Logger == nil {
		c.config.Logger = slog.New(slog.DiscardHandler)
	}
	return c, nil
}

// Run does rounds until ctx ends, and then returns nil. A round that fails is
// logged and tried again after the usual rest.
func (c *Cleanup) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		removed, err := c.Once(ctx)
		switch {
		case err != nil && ctx.Err() == nil:
			c.config.Logger.Warn("cleanup failed", "error", err)
		case removed != Removed{}:
			c.config.Logger.Info("cleanup", "events", removed.Events, "consumed", removed.Consumed)
		}
		rest(ctx, c.config.Every)
	}
	return nil
}

// Once does one round: it removes all that may go now.
func (c *Cleanup) Once(ctx context.Context) (Removed, error) {
	var removed Removed
	var err error
	if c.outbox != nil {
		err = c.events(ctx, &removed.Events)
	}
	for _, group := range c.config.Groups {
		if err != nil {
			break
		}
		err = c.untilShort(ctx, &removed.Consumed, takesTurns(c.consumer), func(limit int) (int, error) {
			return c.consumer.CleanupConsumed(ctx, group, c.config.InboxRetention, limit)
		})
	}
	return removed, err
}

func (c *Cleanup) events(ctx context.Context, removed *int) error {
	request := store.CleanupRequest{Retention: c.config.Retention, Archive: c.config.Archive}
	if c.config.Below != nil {
		below, err := c.config.Below(ctx)
		if err != nil || below <= 0 {
			return err
		}
		request.Below = below
	}
	return c.untilShort(ctx, removed, takesTurns(c.outbox), func(limit int) (int, error) {
		request.Limit = limit
		return c.outbox.Cleanup(ctx, request)
	})
}

func takesTurns(st any) bool {
	_, is := st.(store.OneWriter)
	return is
}

// untilShort repeats a step until it removes less than it was asked to.
func (c *Cleanup) untilShort(ctx context.Context, total *int, oneWriter bool, step func(limit int) (int, error)) error {
	for pace := newPace(c.config.Batch, c.config.Pause, oneWriter); ; {
		limit, began := pace.limit, now()
		n, err := step(limit)
		*total += n
		if err != nil || n < limit {
			return err
		}
		if !rest(ctx, pace.after(now().Sub(began))) {
			return ctx.Err()
		}
	}
}

func orDefault[T int | time.Duration](value, standard T) T {
	if value == 0 {
		return standard
	}
	return value
}
