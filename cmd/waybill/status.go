package main

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/waybillhq/waybill/cmd/waybill/internal/adapter"
	"github.com/waybillhq/waybill/ops"
)

type statusCmd struct {
	JSON  bool `name:"json" help:"Print JSON."`
	Check bool `help:"Exit 3 when there is a reason for alarm: no live relay, old or dead events."`
}

func (c *statusCmd) Run(a *app) error {
	loaded, st, err := a.open()
	if err != nil {
		return err
	}
	defer func() { _ = st.Close() }()
	inboxes, closeInboxes := a.openInboxes(&loaded.Config)
	defer closeInboxes()
	status, err := ops.ReadStatus(a.ctx, st, &ops.StatusConfig{MaxPendingAge: loaded.Status.MaxPendingAge, Inboxes: inboxes, CheckWrite: true, NoTrigger: loaded.Store.NoTrigger})
	if err != nil {
		return err
	}
	if c.JSON {
		err = a.printJSON(status)
	} else {
		err = a.print(a.screen.status(adapter.Describe(loaded.Store), &status))
	}
	if err == nil && c.Check && status.State != ops.Green {
		return errFindings
	}
	return err
}

// Help has the examples.
func (statusCmd) Help() string {
	return `Each reason is followed by what to do about it. With --check the exit code is 3 when there is any: no live relay owns a
lane, the oldest pending event is older than status.max_pending_age, events are dead, or a consumer has stopped.

Examples:

	waybill status
	waybill status --check --json
	waybill status --check >/dev/null || echo "look at waybill status"`
}

// status renders a status for people.
func (s screen) status(where string, status *ops.Status) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %s\n", s.state(status.State, strings.ToUpper(status.State)), where)
	for _, cause := range status.Causes {
		fmt.Fprintf(&b, "  - %s\n    %s\n", oneLine(cause.Text), cause.Fix)
	}
	q, oldest := &status.Queue, "-"
	if q.Pending > 0 {
		oldest = time.Duration(q.OldestPendingSeconds * float64(time.Second)).Round(100 * time.Millisecond).String()
	}
	lanes := &status.Lanes
	b.WriteString("\n" + s.table([]string{"pending", "failed", "dead", "parked", "oldest pending", "lanes owned", "expired", "free"}, [][]string{{
		fmt.Sprint(q.Pending), fmt.Sprint(q.Failed), fmt.Sprint(q.Dead), fmt.Sprint(q.Parked), oldest,
		fmt.Sprintf("%d of %d", lanes.Owned, lanes.Total), fmt.Sprint(lanes.Expired), fmt.Sprint(lanes.Free),
	}}))
	if mode := status.Delivery.Mode; mode != "" && mode != "relay" {
		b.WriteString("\n" + deliveryText(&status.Delivery))
	}
	if len(status.Relays) > 0 {
		var rows [][]string
		for _, r := range status.Relays {
			rows = append(rows, []string{oneLine(r.Host), r.Mode, yesNo(r.Live), fmt.Sprint(r.Lanes), stamp(r.StartedAt)})
		}
		b.WriteString("\n" + s.table([]string{"relay", "mode", "live", "lanes", "started"}, rows))
	}
	if log := status.Log; log != nil {
		b.WriteString("\n" + s.table([]string{"log", "state", "delay", "behind", "kept", "headroom", "restarts", "lost", "position"}, [][]string{{
			oneLine(cmp.Or(log.Source, "-")), cmp.Or(log.State, "-"), time.Duration(log.DelaySeconds * float64(time.Second)).String(),
			bytesText(log.LagBytes), bytesText(log.RetainedBytes), hoursText(log.HeadroomHours),
			fmt.Sprint(log.Restarts), fmt.Sprint(log.Losses), oneLine(shortText(log.Position, 40)),
		}}))
	}
	if len(status.Consumers) > 0 {
		var rows [][]string
		for _, c := range status.Consumers {
			if c.Error != "" {
				rows = append(rows, []string{c.Inbox, oneLine(c.Group), "-", "-", "-", "-", "-", oneLine(c.Error)})
				continue
			}
			rows = append(rows, []string{
				c.Inbox, oneLine(c.Group), fmt.Sprintf("%d of %d", c.Readers, c.Partitions),
				fmt.Sprint(c.Retry), fmt.Sprint(c.Blocked), fmt.Sprint(c.Waiting), fmt.Sprint(c.Dead), "",
			})
		}
		b.WriteString("\n" + s.table([]string{"inbox", "group", "readers", "retry", "blocked", "waiting", "dead", ""}, rows))
	}
	return b.String()
}

// bytesText and hoursText write "-" for what is not known.
func bytesText(n int64) string {
	switch {
	case n < 0:
		return "-"
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
}

func hoursText(hours float64) string {
	if hours < 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f h", hours)
}

func shortText(text string, n int) string {
	if runes := []rune(text); len(runes) > n {
		return string(runes[:n]) + "..."
	}
	return cmp.Or(text, "-")
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
