package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/waybillhq/waybill/cmd/waybill/internal/adapter"
	"github.com/waybillhq/waybill/ops"
)

type statusCmd struct {
	JSON  bool `name:"json" help:"Print JSON."`
	Check bool `help:"Exit 3 when there is a reason for alarm: no live relay, old or dead events."`
}

func (c *statusCmd) Run(a *app) error {
	loaded, err := a.load()
	if err != nil {
		return err
	}
	st, err := a.openStore(loaded)
	if err != nil {
		return err
	}
	defer func() { _ = st.Close() }()
	status, err := ops.ReadStatus(a.ctx, st, &ops.StatusConfig{MaxPendingAge: loaded.Status.MaxPendingAge})
	if err != nil {
		return err
	}
	if c.JSON {
		err = a.printJSON(status)
	} else {
		_, err = fmt.Fprint(a.stdout, statusText(adapter.Describe(loaded.Store), &status))
	}
	if err == nil && c.Check && status.State != ops.Green {
		return errFindings
	}
	return err
}

func statusText(where string, s *ops.Status) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %s\n", strings.ToUpper(s.State), where)
	for _, reason := range s.Reasons {
		fmt.Fprintf(&b, "  - %s\n", reason)
	}
	queue := newTable()
	queue.AppendHeader(table.Row{"pending", "failed", "dead", "parked", "oldest pending", "lanes owned", "expired", "free"})
	oldest := "-"
	if s.Queue.Pending > 0 {
		oldest = time.Duration(s.Queue.OldestPendingSeconds * float64(time.Second)).Round(100 * time.Millisecond).String()
	}
	queue.AppendRow(table.Row{
		s.Queue.Pending, s.Queue.Failed, s.Queue.Dead, s.Queue.Parked, oldest,
		fmt.Sprintf("%d of %d", s.Lanes.Owned, s.Lanes.Total), s.Lanes.Expired, s.Lanes.Free,
	})
	fmt.Fprintf(&b, "\n%s\n", queue.Render())
	if len(s.Relays) == 0 {
		return b.String()
	}
	relays := newTable()
	relays.AppendHeader(table.Row{"relay", "mode", "live", "lanes", "started"})
	for _, r := range s.Relays {
		live := "yes"
		if !r.Live {
			live = "no"
		}
		relays.AppendRow(table.Row{r.Host, r.Mode, live, r.Lanes, r.StartedAt.UTC().Format("2006-01-02 15:04:05Z")})
	}
	fmt.Fprintf(&b, "\n%s\n", relays.Render())
	return b.String()
}

// newTable returns a table that reads the same on a terminal and in a mail.
func newTable() table.Writer {
	t := table.NewWriter()
	style := table.StyleDefault
	style.Options = table.Options{SeparateColumns: false, DrawBorder: false, SeparateHeader: false}
	style.Box.PaddingLeft, style.Box.PaddingRight = "", "  "
	style.Format.Header = 0
	t.SetStyle(style)
	return t
}
