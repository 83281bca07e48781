package main

import (
	"fmt"
	"io"

	"github.com/waybillhq/waybill/cmd/waybill/internal/adapter"
	"github.com/waybillhq/waybill/store"
)

type migrateCmd struct {
	Print     bool `help:"Print the SQL instead of running it, for a tool of your own."`
	NoTrigger bool `help:"Leave out the trigger that queues each event; producers then write the queue row too."`
	Head      bool `help:"Also keep the latest event of each aggregate in a table of its own, which outlives the events."`
	NoOutbox  bool `help:"Leave out the producer's tables."`
	NoInbox   bool `help:"Leave out the consumer's tables."`
}

// Help has the examples.
func (migrateCmd) Help() string {
	return `It may be run again, and by several processes at once.

Examples:

	waybill migrate
	waybill migrate --print >waybill.sql
	waybill migrate --head
	waybill migrate --no-outbox --set store.dsn=inventory.db`
}

func (c *migrateCmd) Run(a *app) error {
	if c.NoOutbox && c.NoInbox {
		return usageError{fmt.Errorf("--no-outbox and --no-inbox together leave nothing to create")}
	}
	loaded, err := a.load()
	if err != nil {
		return err
	}
	st, err := adapter.CreateStore(a.ctx, loaded.Store)
	if err != nil {
		return err
	}
	defer func() { _ = st.Close() }()
	options := store.MigrateOptions{NoTrigger: c.NoTrigger || loaded.Store.NoTrigger, Head: c.Head || loaded.Store.Head, SkipOutbox: c.NoOutbox, SkipInbox: c.NoInbox}
	if c.Print {
		_, err := io.WriteString(a.stdout, st.MigrateSQL(options))
		return err
	}
	if err := st.Migrate(a.ctx, options); err != nil {
		return err
	}
	meta, err := st.ReadMeta(a.ctx)
	if err != nil {
		return err
	}
	trigger := "with the queue trigger"
	if !meta.Trigger {
		trigger = "without a queue trigger"
	}
	if meta.Head {
		trigger += " and heads"
	}
	_, err = fmt.Fprintf(a.stdout, "%s: tables of version %d are in place, %s\n", adapter.Describe(loaded.Store), meta.Version, trigger)
	return err
}
