package main

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/waybillhq/waybill/cmd/waybill/internal/adapter"
	"github.com/waybillhq/waybill/ops"
	"github.com/waybillhq/waybill/store"
)

type deadCmd struct {
	List  deadListCmd  `cmd:"" help:"List the events that will not be sent without a decision."`
	Show  deadShowCmd  `cmd:"" help:"Show one event with its errors."`
	Retry deadRetryCmd `cmd:"" help:"Send events again, their attempts forgotten."`
	Skip  deadSkipCmd  `cmd:"" help:"Give events up: a marker is sent in their place."`
}

// deadFilter are the conditions of the list and of the verbs.
type deadFilter struct {
	Topic string `placeholder:"TOPIC" help:"Only of this topic."`
	Type  string `placeholder:"TYPE" help:"Only of this event type."`
	Key   string `placeholder:"KEY" help:"Only of this key or aggregate id."`
	Error string `placeholder:"TEXT" help:"Only with this text in the last error."`
}

func (f *deadFilter) filter() ops.DeadFilter {
	return ops.DeadFilter{Topic: f.Topic, Type: f.Type, Key: f.Key, Error: f.Error}
}

type deadListCmd struct {
	deadFilter `embed:""`
	Limit      int   `default:"50" help:"The most events."`
	After      int64 `placeholder:"ID" help:"The next page: only greater outbox ids."`
	JSON       bool  `name:"json" help:"Print JSON."`
}

func (deadListCmd) Help() string {
	return `Events are listed by their outbox id, the oldest first.

Examples:

	waybill dead list
	waybill dead list --topic orders --error "too large"
	waybill dead list --limit 100 --after 4711 --json`
}

// deadPage is a page of dead events.
type deadPage struct {
	Events []ops.EventView `json:"events"`
	More   bool            `json:"more"`
	After  int64           `json:"after,omitempty"` // where the next page begins
}

func (c *deadListCmd) Run(a *app) error {
	_, st, err := a.open()
	if err != nil {
		return err
	}
	defer func() { _ = st.Close() }()
	filter := c.filter()
	filter.Limit, filter.After = c.Limit, c.After
	dead, more, err := ops.ListDead(a.ctx, st, filter)
	if err != nil {
		return err
	}
	page := deadPage{Events: []ops.EventView{}, More: more}
	var rows [][]string
	for i := range dead {
		v := ops.ViewEvent(&dead[i], false)
		page.Events = append(page.Events, v)
		rows = append(rows, []string{
			strconv.FormatInt(v.ID, 10), oneLine(v.EventID), oneLine(v.Type), oneLine(v.Topic), oneLine(v.Key), strconv.Itoa(v.Attempts), oneLine(v.LastError),
		})
	}
	if more {
		page.After = dead[len(dead)-1].ID
	}
	if c.JSON {
		return a.printJSON(page)
	}
	if len(dead) == 0 {
		return a.print("no dead events\n")
	}
	out := a.screen.table([]string{"id", "event", "type", "topic", "key", "attempts", "last error"}, rows)
	if more {
		out += fmt.Sprintf("there are more: --after %d\n", page.After)
	}
	return a.print(out)
}

type deadShowCmd struct {
	EventID string `arg:"" name:"event-id" help:"The event."`
	Data    bool   `help:"Show the payload too."`
	JSON    bool   `name:"json" help:"Print JSON."`
}

func (deadShowCmd) Help() string {
	return `Any event of the outbox can be shown, whatever its state.

Examples:

	waybill dead show 0198c5c4-6f0a-7d4e-8a3c-5a6d1c2b3e4f
	waybill dead show O-1001-v3 --data --json`
}

func (c *deadShowCmd) Run(a *app) error {
	_, st, err := a.open()
	if err != nil {
		return err
	}
	defer func() { _ = st.Close() }()
	found, err := st.Find(a.ctx, store.Filter{EventIDs: []string{c.EventID}})
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return fmt.Errorf("dead show %s: %w (waybill trace %s asks the consumers too)", c.EventID, ops.ErrNoEvent, c.EventID)
	}
	v := ops.ViewEvent(&found[0], c.Data)
	if c.JSON {
		return a.printJSON(v)
	}
	out := fields(
		"event", v.EventID, "status", v.Status, "outbox id", strconv.FormatInt(v.ID, 10), "type", v.Type, "topic", v.Topic, "key", v.Key,
		"tenant", v.TenantID, "aggregate", fmt.Sprintf("%s %s v%d", v.AggregateType, v.AggregateID, v.AggregateVersion),
		"inserted", stamp(v.CreatedAt), "attempts", strconv.Itoa(v.Attempts), "first error", v.FirstError, "last error", v.LastError,
		"content type", v.ContentType, "payload", fmt.Sprintf("%d bytes", v.DataBytes),
	)
	if c.Data {
		out += "\n" + printable(string(found[0].Event.Data)) + "\n"
	}
	if v.Status == string(store.StatusDead) {
		out += "\nnext: waybill trace says why and what to do\n"
	}
	return a.print(out)
}

// deadTargets name the events that a verb changes.
type deadTargets struct {
	EventIDs   []string `arg:"" optional:"" name:"event-id" help:"The events."`
	deadFilter `embed:""`
	All        bool `help:"All dead events."`
	acting     `embed:""`
}

// check refuses what names nothing, or names it twice.
func (c *deadTargets) check() error {
	filtered := c.deadFilter != deadFilter{}
	switch {
	case len(c.EventIDs) == 0 && !filtered && !c.All:
		return usageError{errors.New("name events, a condition (--topic, --type, --key, --error), or --all")}
	case len(c.EventIDs) > 0 && (filtered || c.All):
		return usageError{errors.New("name either events or conditions")}
	}
	return nil
}

// ids returns the events that are meant now: those that die while the command
// works are left for the next one.
func (c *deadTargets) ids(a *app, st adapter.Store) ([]string, error) {
	if len(c.EventIDs) > 0 {
		return c.EventIDs, nil
	}
	filter := c.filter()
	filter.Limit = 1_000_000
	dead, _, err := ops.ListDead(a.ctx, st, filter)
	ids := make([]string, len(dead))
	for i := range dead {
		ids[i] = dead[i].Event.ID
	}
	return ids, err
}

func (c *deadTargets) run(a *app, done string, verb func(adapter.Store, store.Action, []string) ([]store.Result, error)) error {
	if err := c.check(); err != nil {
		return err
	}
	action, err := c.action()
	if err != nil {
		return err
	}
	_, st, err := a.open()
	if err != nil {
		return err
	}
	defer func() { _ = st.Close() }()
	ids, err := c.ids(a, st)
	if err != nil {
		return err
	}
	if len(ids) == 0 {
		return a.printResults(c.JSON, nil, done)
	}
	results, err := verb(st, action, ids)
	if printErr := a.printResults(c.JSON, results, done); err == nil {
		err = printErr
	}
	return err
}

type deadRetryCmd struct {
	deadTargets `embed:""`
}

func (deadRetryCmd) Help() string {
	return `The events are due at once, with all their attempts before them. Those behind them on the same key follow in order.
Exit code 3 says that not every event could be retried; each line says why.

Examples:

	waybill dead retry O-1001-v3 --reason "topic was created"
	waybill dead retry --topic orders --reason "limit of the broker raised"
	waybill dead retry --all --reason "broker mended" --actor anna`
}

func (c *deadRetryCmd) Run(a *app) error {
	return c.run(a, store.OutcomeRetried, func(st adapter.Store, action store.Action, ids []string) ([]store.Result, error) {
		return ops.RetryDead(a.ctx, st, action, ids...)
	})
}

type deadSkipCmd struct {
	deadTargets `embed:""`
}

func (deadSkipCmd) Help() string {
	return `A marker with the same id and version, and no data, is sent in place of each event, so that consumers do not wait for it;
what is behind it on its key goes on. Exit code 3 says that not every event could be skipped.

Examples:

	waybill dead skip O-1001-v3 --reason "order was a test"
	waybill dead skip --type OrderImported --reason "import is repeated tomorrow"`
}

func (c *deadSkipCmd) Run(a *app) error {
	return c.run(a, store.OutcomeSkipped, func(st adapter.Store, action store.Action, ids []string) ([]store.Result, error) {
		return ops.SkipDead(a.ctx, st, action, ids...)
	})
}

// stamp is how a time is shown: in UTC, as in logs.
func stamp(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return at.UTC().Format("2006-01-02 15:04:05Z")
}
