package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
	"github.com/waybillhq/waybill/cmd/waybill/internal/adapter"
	"github.com/waybillhq/waybill/cmd/waybill/internal/config"
	"github.com/waybillhq/waybill/ops"
	"github.com/waybillhq/waybill/store"
)

type doctorCmd struct {
	Requeue  bool `help:"Queue the events that were never queued. Needs --reason."`
	NoBroker bool `help:"Leave the broker alone."`
	acting   `embed:""`
}

// Help has the examples.
func (doctorCmd) Help() string {
	return `Looked at are the tables and the trigger, whether the database can be written, events that were never queued, queue rows
without an event, leases and relays, dead and failing events, clocks, the broker and its settings, the consumers under
inboxes, and the checks under reconcile: times that do not go together, and alerts. Exit code 3 says that something needs a person. An embedded broker is looked at only through its relay.

Examples:

	waybill doctor
	waybill doctor --json --no-broker
	waybill doctor --requeue --reason "trigger was missing since Tuesday"`
}

func (c *doctorCmd) Run(a *app) error {
	var action store.Action
	var err error
	if c.Requeue {
		if action, err = c.action(); err != nil {
			return err
		}
	}
	loaded, st, err := a.open()
	if err != nil {
		return err
	}
	defer func() { _ = st.Close() }()
	if c.Requeue {
		results, err := ops.RequeueUnqueued(a.ctx, st, action)
		if printErr := a.printResults(c.JSON, results, store.OutcomeQueued); err == nil {
			err = printErr
		}
		return err
	}
	inboxes, closeInboxes := a.openInboxes(&loaded.Config)
	defer closeInboxes()
	settings := &ops.DoctorConfig{
		NoTrigger: loaded.Store.NoTrigger, Head: loaded.Store.Head, Topics: slices.Sorted(maps.Keys(loaded.Relay.Topics)),
		MaxPendingAge: loaded.Status.MaxPendingAge, InboxRetention: inboxRetention(loaded.Cleanup), Inboxes: inboxes, Now: now,
	}
	source, err := adapter.OpenSource(&loaded.Config, a.logger)
	if err != nil {
		return err
	}
	if source != nil {
		defer func() { _ = source.Close() }()
		settings.Source, settings.Mode = source, loaded.Relay.Mode
	}
	if !c.NoBroker && loaded.Broker.Kind != "embedded" {
		checker, closeBroker, err := a.openChecker(loaded.Broker)
		if err != nil {
			return err
		}
		defer closeBroker()
		settings.Checker = checker
	}
	diagnosis, err := ops.Doctor(a.ctx, st, settings)
	if err != nil {
		return err
	}
	watched, err := a.newWatch(&loaded.Config)
	if err != nil {
		return err
	}
	if watched != nil {
		diagnosis.Examinations = append(diagnosis.Examinations, watched.examine(a.ctx)...)
	}
	if c.JSON {
		err = a.printJSON(diagnosis)
	} else {
		err = a.print(a.screen.diagnosis(&diagnosis))
	}
	if err == nil && !diagnosis.Healthy() {
		return errFindings
	}
	return err
}

// inboxRetention is the age at which the cleanup forgets what consumers have
// consumed; 0 where there is none.
func inboxRetention(c config.Cleanup) time.Duration {
	const standard = 30 * 24 * time.Hour // of ops.CleanupConfig
	switch {
	case c.Off, c.InboxRetention == config.Forever:
		return 0
	case c.InboxRetention == 0:
		return standard
	}
	return time.Duration(c.InboxRetention)
}

// patience is how long the doctor waits for a broker.
const patience = 5 * time.Second

// openChecker opens the broker. One that is away is what the doctor tells of,
// not an end of the examination.
func (a *app) openChecker(c config.Broker) (broker.Checker, func(), error) {
	ctx, cancel := context.WithTimeout(a.ctx, patience)
	opened, err := adapter.OpenBroker(ctx, c, a.logger)
	var wrong *adapter.ConfigError
	switch {
	case errors.As(err, &wrong):
		cancel()
		return nil, nil, err
	case err != nil:
		cancel()
		return away{err}, func() {}, nil
	}
	return opened, func() { cancel(); _ = opened.Close() }, nil
}

// away is the examination of a broker that does not answer.
type away struct{ err error }

// Check implements [broker.Checker].
func (w away) Check(context.Context, []string) []broker.Check {
	hint := "is it running, and is broker.url right? Events wait in the outbox meanwhile, and go out by themselves"
	var known *waybill.Error
	if errors.As(w.err, &known) && known.Hint != "" {
		hint = known.Hint
		w.err = &waybill.Error{Op: known.Op, Key: known.Key, Err: known.Err}
	}
	return []broker.Check{{Name: "reachable", Detail: oneLine(w.err.Error()), Hint: hint}}
}

func (s screen) diagnosis(d *ops.Diagnosis) string {
	var b strings.Builder
	for _, e := range d.Examinations {
		mark := s.state(ops.Green, "ok  ")
		if !e.OK {
			mark = s.state(ops.Red, "BAD ")
		}
		fmt.Fprintf(&b, "%s %s: %s\n", mark, printable(e.Check), printable(e.Detail))
		if e.Hint != "" {
			fmt.Fprintf(&b, "     %s\n", printable(e.Hint))
		}
		if n := len(e.EventIDs); n > 0 {
			shown := strings.Join(e.EventIDs[:min(n, 5)], ", ")
			if n > 5 || e.More {
				shown += ", ... (all with --json)"
			}
			fmt.Fprintf(&b, "     events: %s\n", printable(shown))
		}
	}
	return b.String()
}
