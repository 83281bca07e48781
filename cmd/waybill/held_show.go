package main

import (
	"fmt"
	"strconv"

	"github.com/waybillhq/waybill/ops"
	"github.com/waybillhq/waybill/store"
)

type heldShowCmd struct {
	EventID  string `arg:"" name:"event-id" help:"The event."`
	consumer `embed:""`
	Data     bool `help:"Show the record's value too."`
	JSON     bool `name:"json" help:"Print JSON."`
}

func (heldShowCmd) Help() string {
	return `The stack is that of the last panic of the handler. The dead letter is the event's copy in its topic of dead letters: when it
was sent, or why it never will be. Calls are what the handler asked of other systems, each with the idempotency key that the
other system was given and who began it; of one "in doubt" nobody knows what it did: look there for the key, then
waybill held resolve.

Examples:

	waybill held show O-1001-v3
	waybill held show O-1001-v3 --group inventory --data --json`
}

func (c *heldShowCmd) Run(a *app) error {
	st, group, err := c.open(a)
	if err != nil {
		return err
	}
	defer func() { _ = st.Close() }()
	v, ok, err := ops.ShowHeld(a.ctx, st, group, c.EventID, c.Data)
	if err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("held show %s: group %s keeps no such event aside (waybill trace %s says where it is)", c.EventID, group, c.EventID)
	}
	if c.JSON {
		return a.printJSON(v)
	}
	out := fields(
		"event", v.EventID, "group", v.Group, "state", v.State, "seq", strconv.FormatInt(v.Seq, 10), "type", v.Type,
		"from", fmt.Sprintf("%s[%d]@%d", v.Topic, v.Partition, v.Position), "key", v.Key, "tenant", v.TenantID,
		"aggregate", fmt.Sprintf("%s %s v%d", v.AggregateType, v.AggregateID, v.AggregateVersion),
		"attempts", strconv.Itoa(v.Attempts), "next in", inTime(v.RetryInSeconds), "held since", stamp(v.HeldAt), "last failed", stamp(v.LastFailedAt),
		"first error", v.FirstError, "last error", v.LastError, "stack", v.Stack, "dead letter", deadLetter(&v),
		"record", fmt.Sprintf("%d bytes", v.RecordBytes),
	)
	for i := range v.Calls {
		out += "\n" + callText(&v.Calls[i])
	}
	if v.Record != nil {
		out += "\n" + dataText(v.Record) + "\n"
	}
	return a.print(out)
}

// deadLetter is empty where none is due.
func deadLetter(v *ops.HeldView) string {
	switch {
	case v.DeadLetterNote != "":
		return "none: " + v.DeadLetterNote
	case !v.DeadLetterAt.IsZero():
		return "sent " + stamp(v.DeadLetterAt)
	case v.State == string(store.HeldDead):
		return "not sent: not yet, or this group sends none"
	}
	return ""
}

func callText(c *ops.CallView) string {
	state, owner, again := c.State, c.Owner+", no longer at it", "may do it twice"
	switch {
	case c.InDoubt:
		state += ", in doubt: waybill held resolve"
	case c.State == string(store.EffectDone):
		owner = c.Owner
	case c.OwnedForSeconds > 0:
		owner = fmt.Sprintf("%s, at it; its lease runs for another %s", c.Owner, inTime(c.OwnedForSeconds))
	}
	if c.Idempotent {
		again = "is harmless"
	}
	return fields(
		"call", c.Name, "state", state, "key", c.IdempotencyKey, "second call", again, "begun", fmt.Sprintf("%s, tries: %d", stamp(c.StartedAt), c.Tries),
		"owner", owner, "result", dataText(c.Result),
	)
}

// dataText is what a payload looks like on a screen.
func dataText(d *ops.DataView) string {
	switch {
	case d == nil:
		return ""
	case d.JSON != nil:
		return printable(string(d.JSON))
	case d.Text != "":
		return printable(d.Text)
	}
	return printable(string(d.Bytes))
}
