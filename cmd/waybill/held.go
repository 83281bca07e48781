package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/cmd/waybill/internal/adapter"
	"github.com/waybillhq/waybill/cmd/waybill/internal/config"
	"github.com/waybillhq/waybill/ops"
	"github.com/waybillhq/waybill/store"
)

type heldCmd struct {
	List    heldListCmd    `cmd:"" help:"List the events that a consumer keeps aside."`
	Show    heldShowCmd    `cmd:"" help:"Show one of them with its errors."`
	Retry   heldRetryCmd   `cmd:"" help:"Handle events again at once, their attempts forgotten."`
	Skip    heldSkipCmd    `cmd:"" help:"Settle events as SKIPPED without handling them."`
	Resolve heldResolveCmd `cmd:"" help:"Say what a call in doubt has done, or what was done by hand instead."`
	Release heldReleaseCmd `cmd:"" help:"Handle events once more at once, or without the version they wait for."`
}

// consumer says which consumer is meant.
type consumer struct {
	Inbox string `placeholder:"NAME" help:"The consumer's database: a name under inboxes. Default: the only one, else that of the outbox."`
	Group string `placeholder:"GROUP" help:"The consumer group. Default: the only one."`
}

// open opens the consumer's database and finds the group.
func (c *consumer) open(a *app) (adapter.Store, string, error) {
	loaded, err := a.load()
	if err != nil {
		return nil, "", err
	}
	st, err := c.openInbox(a, &loaded.Config)
	if err != nil {
		return nil, "", err
	}
	group, err := c.group(a, st)
	if errors.Is(err, ops.ErrNoGroup) && len(loaded.Inboxes) == 0 {
		err = &waybill.Error{Op: "find the consumer", Err: err, Hint: "this is the outbox's own database; name the consumer's under inboxes in the configuration"}
	}
	if err != nil {
		return nil, "", errors.Join(err, st.Close())
	}
	return st, group, nil
}

func (c *consumer) openInbox(a *app, loaded *config.Config) (adapter.Store, error) {
	name, names := c.Inbox, slices.Sorted(maps.Keys(loaded.Inboxes))
	switch {
	case name == "" && len(names) == 0:
		return adapter.OpenStore(a.ctx, loaded.Store)
	case name == "" && len(names) == 1:
		name = names[0]
	case name == "":
		return nil, usageError{fmt.Errorf("which consumer? --inbox %s", strings.Join(names, " | "))}
	}
	inbox, ok := loaded.Inboxes[name]
	if !ok {
		return nil, usageError{fmt.Errorf("there is no inbox %q in the configuration; known: %s", name, orNone(names))}
	}
	return adapter.OpenInbox(a.ctx, name, inbox)
}

func (c *consumer) group(a *app, st adapter.Store) (string, error) {
	groups, err := st.Groups(a.ctx)
	switch {
	case err != nil:
		return "", err
	case c.Group != "" && !slices.Contains(groups, c.Group):
		return "", fmt.Errorf("%w: %q; known here: %s", ops.ErrNoGroup, c.Group, orNone(groups))
	case c.Group != "":
		return c.Group, nil
	case len(groups) == 1:
		return groups[0], nil
	case len(groups) == 0:
		return "", fmt.Errorf("%w: nothing has been consumed into this database", ops.ErrNoGroup)
	}
	return "", usageError{fmt.Errorf("which group? --group %s", strings.Join(groups, " | "))}
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// heldFilter are the conditions of the list and of the verbs.
type heldFilter struct {
	State string `enum:"waiting,blocked,retry,dead," default:"" placeholder:"STATE" help:"Only in this state: waiting, blocked, retry or dead."`
	Topic string `placeholder:"TOPIC" help:"Only of this topic."`
	Type  string `placeholder:"TYPE" help:"Only of this event type."`
	Key   string `placeholder:"KEY" help:"Only of this key or aggregate id."`
	Error string `placeholder:"TEXT" help:"Only with this text in the last error, or with this fingerprint (see held list --group-by error)."`
	Since string `placeholder:"TIME" help:"Only those that failed last, or were set aside, at this time or later: 2026-08-01T12:00:00Z, or an age as 2h."`
	Until string `placeholder:"TIME" help:"Only those before this time, or older than this age."`
}

func (f *heldFilter) query() (ops.HeldQuery, error) {
	q := ops.HeldQuery{State: store.HeldState(strings.ToUpper(f.State)), Topic: f.Topic, Type: f.Type, Key: f.Key, Error: f.Error}
	var err error
	if q.Since, err = moment("--since", f.Since); err == nil {
		q.Until, err = moment("--until", f.Until)
	}
	return q, err
}

type heldListCmd struct {
	consumer   `embed:""`
	heldFilter `embed:""`
	GroupBy    string `name:"group-by" enum:"error," default:"" placeholder:"WHAT" help:"Sum up: error puts those together whose last errors differ in numbers, ids and quoted parts alone."`
	Limit      int    `default:"50" help:"The most events."`
	After      int64  `placeholder:"SEQ" help:"The next page: only greater seq."`
	JSON       bool   `name:"json" help:"Print JSON."`
}

func (heldListCmd) Help() string {
	return `Events are listed in the order in which they were set aside. DEAD ones wait for a decision, RETRY ones for their next attempt,
BLOCKED ones for an earlier event of their key, WAITING ones for a lower version of their aggregate.

Examples:

	waybill held list
	waybill held list --inbox inventory --group inventory --state dead
	waybill held list --key O-1001 --json
	waybill held list --state dead --group-by error`
}

// heldPage is a page of held events.
type heldPage struct {
	Group  string         `json:"group"`
	Events []ops.HeldView `json:"events"`
	More   bool           `json:"more"`
	After  int64          `json:"after,omitempty"` // where the next page begins
}

func (c *heldListCmd) Run(a *app) error {
	st, group, err := c.open(a)
	if err != nil {
		return err
	}
	defer func() { _ = st.Close() }()
	query, err := c.query()
	if err != nil {
		return err
	}
	if c.GroupBy != "" {
		return c.groups(a, st, group, query)
	}
	query.Limit, query.After = c.Limit, c.After
	held, more, err := ops.ListHeld(a.ctx, st, group, query)
	if err != nil {
		return err
	}
	page := heldPage{Group: group, Events: []ops.HeldView{}, More: more}
	var rows [][]string
	for i := range held {
		v := ops.ViewHeld(&held[i], false)
		page.Events = append(page.Events, v)
		rows = append(rows, []string{
			strconv.FormatInt(v.Seq, 10), oneLine(v.EventID), oneLine(v.Type), oneLine(v.Key), v.State, strconv.Itoa(v.Attempts), inTime(v.RetryInSeconds),
			stamp(v.HeldAt), oneLine(v.LastError),
		})
	}
	if more {
		page.After = held[len(held)-1].Seq
	}
	if c.JSON {
		return a.printJSON(page)
	}
	if len(held) == 0 {
		return a.print("group " + group + " keeps nothing aside\n")
	}
	out := a.screen.table([]string{"seq", "event", "type", "key", "state", "attempts", "next in", "held since", "last error"}, rows)
	if more {
		out += fmt.Sprintf("there are more: --after %d\n", page.After)
	}
	return a.print(out)
}

// heldGroups are the held events of a group, summed up.
type heldGroups struct {
	Group  string          `json:"group"`
	Groups []ops.HeldGroup `json:"groups"`
}

func (c *heldListCmd) groups(a *app, st adapter.Store, group string, query ops.HeldQuery) error {
	groups, err := ops.GroupHeld(a.ctx, st, group, query)
	if err != nil {
		return err
	}
	if c.JSON {
		return a.printJSON(heldGroups{group, groups})
	}
	if len(groups) == 0 {
		return a.print("group " + group + " keeps nothing aside\n")
	}
	var rows [][]string
	for i := range groups {
		g := &groups[i]
		rows = append(rows, []string{
			orDash(g.Fingerprint), strconv.Itoa(g.Events), strconv.Itoa(g.Keys), sum(g.States), stamp(g.OldestAt), oneLine(g.EventID), oneLine(g.Error),
		})
	}
	return a.print(a.screen.table([]string{"error", "events", "keys", "states", "oldest", "event", "last error"}, rows))
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

func inTime(seconds float64) string {
	if seconds <= 0 {
		return "-"
	}
	return time.Duration(seconds * float64(time.Second)).Round(time.Second).String()
}

// heldTargets name the events that a verb changes.
type heldTargets struct {
	EventIDs   []string `arg:"" optional:"" name:"event-id" help:"The events."`
	consumer   `embed:""`
	heldFilter `embed:""`
	All        bool `help:"All held events of the group."`
	acting     `embed:""`
}

func (c *heldTargets) run(a *app, done string, verb func(*ops.Held, store.Action, string, []string) ([]store.Result, error)) error {
	filtered := c.heldFilter != heldFilter{}
	switch {
	case len(c.EventIDs) == 0 && !filtered && !c.All:
		return usageError{errors.New("name events, a condition (--state, --topic, --type, --key, --error), or --all")}
	case len(c.EventIDs) > 0 && (filtered || c.All):
		return usageError{errors.New("name either events or conditions")}
	}
	action, err := c.action()
	if err != nil {
		return err
	}
	st, group, err := c.consumer.open(a)
	if err != nil {
		return err
	}
	defer func() { _ = st.Close() }()
	desk, err := adapter.Held(st)
	if err != nil {
		return err
	}
	ids := c.EventIDs
	if len(ids) == 0 {
		query, err := c.query()
		if err != nil {
			return err
		}
		query.Limit = 1_000_000
		held, _, err := ops.ListHeld(a.ctx, st, group, query)
		if err != nil {
			return err
		}
		for i := range held {
			ids = append(ids, held[i].Event.ID)
		}
	}
	if len(ids) == 0 {
		return a.printResults(c.JSON, nil, done)
	}
	results, err := verb(desk, action, group, ids)
	if printErr := a.printResults(c.JSON, results, done); err == nil {
		err = printErr
	}
	return err
}

type heldRetryCmd struct {
	heldTargets `embed:""`
	Force       bool          `help:"Apply events too whose aggregate has reached a higher version."`
	Wait        time.Duration `placeholder:"TIME" help:"Wait for the consumer, for at most this long, and print what became of each event: applied, duplicate, stale or failed."`
}

func (heldRetryCmd) Help() string {
	return `For events in RETRY or DEAD: they are due now, with the whole schedule before them; those of one key are handled in their order.
The consumer must run. An event that is BLOCKED answers "behind another": decide about the one before it. One that is WAITING
answers "waits": release or skip it. One whose aggregate is further answers "stale", and is applied with --force alone: it may
undo what came after it. One that is no longer held, because it is consumed, answers "duplicate". One of which nobody knows
whether its call to another system was made answers "in doubt": see held resolve.

Examples:

	waybill held retry O-1001-v3 --reason "article was added" --wait 30s
	waybill held retry --group inventory --state dead --reason "handler mended"
	waybill held retry --type OrderPaid --since 2h --error err-5f2b9c01 --reason "handler mended" --json`
}

func (c *heldRetryCmd) Run(a *app) error {
	if c.Wait < 0 {
		return usageError{fmt.Errorf("--wait=%s: a time", c.Wait)}
	}
	done := store.OutcomeRetried
	if c.Wait > 0 {
		done = store.OutcomeApplied
	}
	return c.run(a, done, func(desk *ops.Held, action store.Action, group string, ids []string) ([]store.Result, error) {
		verb := desk.Retry
		if c.Force {
			verb = desk.Force
		}
		results, err := verb(a.ctx, action, group, ids...)
		if err != nil || c.Wait == 0 {
			return results, err
		}
		return desk.Await(a.ctx, group, results, c.Wait)
	})
}

type heldResolveCmd struct {
	heldTargets `embed:""`
	Compensated string `placeholder:"REF" help:"What was done by hand instead, for the audit: a ticket, a refund. The event is settled as SKIPPED."`
	Done        bool   `help:"The call did what it should: the event is handled, without another call."`
	Result      string `placeholder:"TEXT" help:"With --done: what the call answered, for the handler."`
	NotDone     bool   `help:"The call did nothing: it is made again."`
}

func (heldResolveCmd) Help() string {
	return `A consumer that asks another system to do something, and dies before the answer, cannot know whether it was done. Where a second
call might do it twice, the event is DEAD, its error begins with "parked: effect", and somebody has to look at the other system,
by the key that "held show" prints. Then exactly one answer is given. An answer of the other system that arrives after all is taken
without a person.

Examples:

	waybill held resolve O-1001-v3 --done --result '{"coupon":"C-77"}' --reason "found in the coupon service"
	waybill held resolve O-1001-v3 --not-done --reason "the coupon service has no such key"
	waybill held resolve O-1001-v3 --compensated REFUND-4711 --reason "customer was refunded"`
}

func (c *heldResolveCmd) Run(a *app) error {
	answers := 0
	for _, given := range []bool{c.Compensated != "", c.Done, c.NotDone} {
		if given {
			answers++
		}
	}
	if answers != 1 || c.Result != "" && !c.Done {
		return usageError{errors.New("give one answer: --compensated REF, --done (with --result, if there is one), or --not-done")}
	}
	done := store.OutcomeRetried
	if c.Compensated != "" {
		done = store.OutcomeCompensated
	}
	r := ops.Resolution{Compensated: c.Compensated, Done: c.Done, Result: []byte(c.Result), NotDone: c.NotDone}
	return c.run(a, done, func(desk *ops.Held, action store.Action, group string, ids []string) ([]store.Result, error) {
		return desk.Resolve(a.ctx, action, group, r, ids...)
	})
}

type heldSkipCmd struct {
	heldTargets `embed:""`
}

func (heldSkipCmd) Help() string {
	return `The events count as consumed from now on, with the outcome SKIPPED, and their effect never happens. What is behind them on
their key goes on.

Examples:

	waybill held skip O-1001-v3 --reason "order was a test"
	waybill held skip --group inventory --key O-1001 --reason "corrected by hand, ticket 4711"`
}

func (c *heldSkipCmd) Run(a *app) error {
	return c.run(a, store.OutcomeSkipped, func(desk *ops.Held, action store.Action, group string, ids []string) ([]store.Result, error) {
		return desk.Skip(a.ctx, action, group, ids...)
	})
}

type heldReleaseCmd struct {
	heldTargets `embed:""`
}

func (heldReleaseCmd) Help() string {
	return `An event in RETRY or DEAD gets one further attempt at once, its attempts kept, so a DEAD one that fails is DEAD again.
One that is WAITING waits for the lower version no longer. One that is BLOCKED answers "behind another": the order within a
key is never given up.

Examples:

	waybill held release O-1001-v5 --reason "v4 was never written"
	waybill held release --group inventory --state waiting --reason "gap accepted, ticket 4711"`
}

func (c *heldReleaseCmd) Run(a *app) error {
	return c.run(a, store.OutcomeReleased, func(desk *ops.Held, action store.Action, group string, ids []string) ([]store.Result, error) {
		return desk.Release(a.ctx, action, group, ids...)
	})
}
