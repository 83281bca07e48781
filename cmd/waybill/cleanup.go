package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/waybillhq/waybill/cmd/waybill/internal/adapter"
	"github.com/waybillhq/waybill/cmd/waybill/internal/config"
	"github.com/waybillhq/waybill/ops"
)

type cleanupCmd struct {
	Retention time.Duration `placeholder:"AGE" help:"The age of what may go, instead of cleanup.retention."`
	Archive   bool          `help:"Copy events to the archive before they go."`
	acting    `embed:""`
}

// Help has the examples.
func (cleanupCmd) Help() string {
	return `Only events whose receipt is older than the retention go, and never one that is in the queue. Databases under inboxes forget
what they consumed before cleanup.inbox_retention. "waybill serve" does the same on a schedule.

Examples:

	waybill cleanup --reason "disk is filling up"
	waybill cleanup --retention 168h --archive --reason "monthly"`
}

func (c *cleanupCmd) Run(a *app) error {
	action, err := c.action()
	if err != nil {
		return err
	}
	if c.Retention < 0 {
		return usageError{fmt.Errorf("--retention=%s: an age", c.Retention)}
	}
	loaded, st, err := a.open()
	if err != nil {
		return err
	}
	if err := checkRetention(&loaded.Config); err != nil {
		return errors.Join(err, st.Close())
	}
	defer func() { _ = st.Close() }()
	settings := loaded.Cleanup
	if c.Retention > 0 {
		settings.Retention = c.Retention
	}
	settings.Archive = settings.Archive || c.Archive
	// Thousands of small transactions have no entry each: one tells of all.
	desk, err := adapter.Held(st)
	if err != nil {
		return err
	}
	note := fmt.Sprintf(`{"retention":%q,"archive":%t}`, settings.Retention, settings.Archive)
	if err := desk.Note(a.ctx, action, "cleanup", "outbox", note); err != nil {
		return err
	}
	watched, err := a.newWatch(&loaded.Config)
	if err != nil {
		return err
	}
	if watched != nil {
		stop, err := watched.open(a.ctx)
		if err != nil {
			return err
		}
		defer stop()
	}
	removed, err := a.cleanOnce(a.ctx, settings, st, &loaded.Config, watched)
	if err != nil {
		return err
	}
	if c.JSON {
		return a.printJSON(removed)
	}
	return a.print(fmt.Sprintf("removed %s, and %s of what consumers remember\n", counted(removed.Events, "event"), counted(removed.Consumed, "row")))
}

// replayAge is how old an event may be that somebody sends again.
const replayAge = 15 * 24 * time.Hour

// checkRetention refuses to forget what may still be delivered: a consumer that
// has forgotten an event would apply it twice.
func checkRetention(c *config.Config) error {
	const standard = 7 * 24 * time.Hour // of topics that are made from here
	broker, inbox := c.Broker.Retention, time.Duration(c.Cleanup.InboxRetention)
	if broker == 0 {
		broker = standard
	}
	if least := broker + replayAge; len(c.Inboxes) > 0 && inbox > 0 && inbox < least {
		return usageError{fmt.Errorf("cleanup.inbox_retention is %s: it must be at least %s, which is broker.retention and 15 days for replays", inbox, least)}
	}
	return nil
}

// cleanOnce does one round over the outbox and over each consumer's database.
// Events that a check has not compared yet stay, whatever their age.
func (a *app) cleanOnce(ctx context.Context, settings config.Cleanup, st adapter.Store, c *config.Config, watched *watch) (removed ops.Removed, err error) {
	ofOutbox := cleanupConfig(settings, nil)
	if watched != nil {
		age, some, err := watched.coverageAge(ctx)
		if err != nil {
			return removed, fmt.Errorf("cleanup waits for the coverage of checks: %w", err)
		}
		if !some {
			ofOutbox.Below = nothing
		}
		if age > retentionOf(settings) {
			ofOutbox.Retention = age
		}
	}
	cleanup, err := ops.NewCleanup(st, nil, ofOutbox)
	if err != nil {
		return removed, usageError{err}
	}
	if removed, err = cleanup.Once(ctx); err != nil {
		return removed, err
	}
	if settings.InboxRetention == config.Forever {
		return removed, nil
	}
	inboxes, closeInboxes := a.openInboxes(c)
	defer closeInboxes()
	for _, in := range inboxes {
		if in.Err != nil {
			return removed, fmt.Errorf("cleanup of inbox %s: %w", in.Name, in.Err)
		}
		groups, err := in.Reader.Groups(ctx)
		if err != nil {
			return removed, err
		}
		cleanup, err := ops.NewCleanup(nil, in.Reader.(adapter.Store), cleanupConfig(settings, groups))
		if err != nil {
			return removed, usageError{err}
		}
		part, err := cleanup.Once(ctx)
		removed.Consumed += part.Consumed
		if err != nil {
			return removed, err
		}
	}
	return removed, nil
}

func retentionOf(settings config.Cleanup) time.Duration {
	const standard = 30 * 24 * time.Hour
	if settings.Retention == 0 {
		return standard
	}
	return settings.Retention
}

func cleanupConfig(c config.Cleanup, groups []string) *ops.CleanupConfig {
	inbox := time.Duration(c.InboxRetention)
	if c.InboxRetention == config.Forever {
		inbox, groups = 0, nil // there is nothing to forget
	}
	return &ops.CleanupConfig{
		Retention: c.Retention, InboxRetention: inbox, Every: c.Every, Batch: c.Batch, Pause: c.Pause, Archive: c.Archive, Groups: groups,
	}
}

func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// nothing is the coverage of checks that have compared nothing yet.
func nothing(context.Context) (int64, error) { return 0, nil }
