package main

import (
	"github.com/waybillhq/waybill/cmd/waybill/internal/adapter"
	"github.com/waybillhq/waybill/ops"
)

type auditCmd struct {
	List auditListCmd `cmd:"" help:"List entries, the newest first."`
}

type auditListCmd struct {
	Inbox  string `placeholder:"NAME" help:"The audit of this consumer's database instead of the outbox's."`
	By     string `placeholder:"ACTOR" help:"Only of this actor."`
	Verb   string `placeholder:"VERB" help:"Only verbs that begin so: dead, held retry, requeue."`
	Target string `placeholder:"EVENT" help:"Only about this event."`
	Limit  int    `default:"50" help:"The most entries."`
	JSON   bool   `name:"json" help:"Print JSON."`
}

// Help has the examples.
func (auditListCmd) Help() string {
	return `Each entry was written in the transaction of what it tells of. What people did about held events is in the consumer's
database.

Examples:

	waybill audit list
	waybill audit list --target O-1001-v3 --json
	waybill audit list --inbox inventory --by anna --verb "held skip"`
}

// auditPage is the newest entries.
type auditPage struct {
	Entries []ops.AuditView `json:"entries"`
}

func (c *auditListCmd) Run(a *app) error {
	loaded, err := a.load()
	if err != nil {
		return err
	}
	var st adapter.Store
	if c.Inbox != "" {
		st, err = (&consumer{Inbox: c.Inbox}).openInbox(a, &loaded.Config)
	} else {
		st, err = a.openStore(loaded)
	}
	if err != nil {
		return err
	}
	defer func() { _ = st.Close() }()
	all := 0 // filtered here: people's actions are few
	if c.By == "" && c.Verb == "" && c.Target == "" {
		all = c.Limit
	}
	entries, err := st.Audit(a.ctx, all)
	if err != nil {
		return err
	}
	page := auditPage{Entries: ops.ViewAudit(entries, ops.AuditFilter{Actor: c.By, Verb: c.Verb, Target: c.Target, Limit: c.Limit})}
	if c.JSON {
		return a.printJSON(page)
	}
	if len(page.Entries) == 0 {
		return a.print("no entries\n")
	}
	var rows [][]string
	for _, e := range page.Entries {
		rows = append(rows, []string{stamp(e.At), oneLine(e.Actor), e.Verb, oneLine(e.Target), oneLine(e.Reason)})
	}
	return a.print(a.screen.table([]string{"at", "actor", "verb", "target", "reason"}, rows))
}
