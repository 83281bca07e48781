package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/waybillhq/waybill/cmd/waybill/internal/adapter"
	"github.com/waybillhq/waybill/cmd/waybill/internal/config"
	"github.com/waybillhq/waybill/ops"
)

type traceCmd struct {
	EventID string `arg:"" optional:"" name:"event-id" help:"The event to follow."`
	Key     string `placeholder:"KEY" help:"Follow the events of this key, or of the aggregate with this id."`
	Limit   int    `default:"20" help:"With --key: the newest so many."`
	JSON    bool   `name:"json" help:"Print JSON."`
}

// Help has the examples.
func (traceCmd) Help() string {
	return `One line for each question: when it was produced, whether it is in the outbox, how it was captured, where it was published,
and of each consumer whether it was received, duplicated, applied, dead, and which other systems it called with
which key. What cannot be known is said to be unknown, with the cause. Where the event stands still, the last lines say why and
what to do.

An event that was never written leaves no trace. That one is found by comparing the business table, the log and the read
model: waybill reconcile, and docs/guide/reconcile.md.

Examples:

	waybill trace O-1001-v3
	waybill trace --key O-1001 --limit 5
	waybill trace O-1001-v3 --json`
}

func (c *traceCmd) Run(a *app) error {
	if (c.EventID == "") == (c.Key == "") {
		return usageError{errors.New("give either an event id or --key")}
	}
	loaded, st, err := a.open()
	if err != nil {
		return err
	}
	defer func() { _ = st.Close() }()
	inboxes, closeInboxes := a.openInboxes(&loaded.Config)
	defer closeInboxes()
	result, err := ops.Trace(a.ctx, st, inboxes, ops.TraceQuery{EventID: c.EventID, Key: c.Key, Limit: c.Limit})
	if err != nil && !errors.Is(err, ops.ErrNoEvent) {
		return err
	}
	if err == nil && len(result.Events) == 0 {
		err = fmt.Errorf("trace %s: the outbox has no event of this key or aggregate id (should there be one? waybill reconcile explain %s compares it with its row)", c.Key, c.Key)
	}
	if c.JSON {
		return errors.Join(a.printJSON(result), err)
	}
	if _, printErr := fmt.Fprint(a.stdout, traceText(&result)); printErr != nil {
		return printErr
	}
	return err
}

// openInboxes opens what can be opened: the trace says of the others why not.
func (a *app) openInboxes(c *config.Config) (inboxes []ops.Inbox, closeAll func()) {
	var opened []adapter.Store
	for _, name := range slices.Sorted(maps.Keys(c.Inboxes)) {
		st, err := adapter.OpenInbox(a.ctx, name, c.Inboxes[name])
		if err != nil {
			inboxes = append(inboxes, ops.Inbox{Name: name, Err: err})
			continue
		}
		opened = append(opened, st)
		inboxes = append(inboxes, ops.Inbox{Name: name, Reader: st})
	}
	return inboxes, func() {
		for _, st := range opened {
			_ = st.Close()
		}
	}
}

func traceText(result *ops.TraceResult) string {
	var b strings.Builder
	if result.More {
		b.WriteString("(older events of this key are left out; see --limit)\n\n")
	}
	for i, e := range result.Events {
		if i > 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "%s", e.EventID)
		if e.Type != "" {
			fmt.Fprintf(&b, "  %s  %s %s", e.Type, e.AggregateType, e.AggregateID)
		}
		if e.AggregateVersion > 0 {
			fmt.Fprintf(&b, " v%d", e.AggregateVersion)
		}
		fmt.Fprintf(&b, "\n  = %s\n", e.Verdict)
		for _, l := range e.Lines {
			question := l.Question
			if l.Group != "" {
				question = l.Group + ": " + question
			}
			fmt.Fprintf(&b, "  %-26s %s\n", question, printable(l.Answer))
		}
		for _, n := range e.Next {
			fmt.Fprintf(&b, "  ! %s\n    %s\n", printable(n.Text), n.Fix)
		}
	}
	return b.String()
}
