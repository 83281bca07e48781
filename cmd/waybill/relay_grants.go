package main

import (
	"io"

	"github.com/waybillhq/waybill/cmd/waybill/internal/adapter"
)

type relayGrantsCmd struct {
	Account string `arg:"" help:"The account of store.dsn, and of cdc.dsn where that is another. On MySQL and MariaDB with its host: relay@10.0.0.7."`
	Poll    bool   `help:"Leave out what only reading the database's own log needs."`
}

// Help has the examples.
func (relayGrantsCmd) Help() string {
	return `Nothing is run. An account with these rights can run a relay, decide about its events and clean up; it cannot append events, see
what consumers keep, or change tables. The script names the tables as the configuration does, and is for the tables' owner to run, once
"waybill migrate" has made them.

Examples:

	waybill relay grants relay
	waybill relay grants relay --poll
	waybill relay grants relay@10.0.0.7 >grants.sql`
}

func (c *relayGrantsCmd) Run(a *app) (err error) {
	loaded, st, err := a.open()
	if err != nil {
		return err
	}
	defer func() { _ = st.Close() }()
	var source adapter.Source
	if !c.Poll {
		if source, err = adapter.OpenSource(&loaded.Config, a.logger); err != nil {
			return err
		}
	}
	if source != nil {
		defer func() { _ = source.Close() }()
	}
	text, err := adapter.Grants(loaded.Store.Kind, st, source, c.Account)
	if err != nil {
		return usageError{err}
	}
	_, err = io.WriteString(a.stdout, text)
	return err
}
