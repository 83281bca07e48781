package main

import (
	"github.com/waybillhq/waybill/cmd/waybill/internal/adapter"
	"github.com/waybillhq/waybill/ops"
	"github.com/waybillhq/waybill/store"
)

type relayCmd struct {
	Start  relayRunCmd    `cmd:"" name:"run" default:"1" help:"Send events until stopped. This is what \"waybill relay\" does."`
	Grants relayGrantsCmd `cmd:"" help:"Print the SQL that gives an account the rights of a relay, and no others."`
	Mode   relayModeCmd   `cmd:"" help:"Change how running relays find events: by polling, or by the database's own log."`
}

type relayModeCmd struct {
	acting `embed:""`
	Mode   string `arg:"" enum:"poll,cdc,config" help:"poll: ask the queue. cdc: follow the database's own log. config: whatever each relay's relay.mode says."`
}

func (relayModeCmd) Help() string {
	return `The mode holds for all relays of the outbox, goes before relay.mode, and is noticed within one renewal, without a restart.
Nothing is lost, sent twice or out of order by it. With cdc one relay holds all lanes and the others stand by. With poll the
replication slot is removed, because a slot that nobody reads keeps the log until the disk is full.

Examples:

	waybill relay mode cdc --reason "the queue is polled too much"
	waybill relay mode poll --reason "the database is being moved"
	waybill relay mode config --reason "as it is configured"`
}

// modeView is what the command prints.
type modeView struct {
	Mode string `json:"mode"` // empty: each relay's own
}

func (c *relayModeCmd) Run(a *app) error {
	action, err := c.action()
	if err != nil {
		return err
	}
	loaded, st, err := a.open()
	if err != nil {
		return err
	}
	defer func() { _ = st.Close() }()
	source, err := adapter.OpenSource(&loaded.Config, a.logger)
	if err != nil {
		return err
	}
	mode := c.Mode
	switch {
	case mode == "config":
		mode = ""
	case mode == store.ModeCDC && source == nil:
		return usageError{adapter.NoLog(loaded.Store.Kind)}
	}
	if source == nil {
		err = ops.SetMode(a.ctx, st, nil, action, mode)
	} else {
		defer func() { _ = source.Close() }()
		err = ops.SetMode(a.ctx, st, source, action, mode)
	}
	switch {
	case err != nil:
		return err
	case c.JSON:
		return a.printJSON(modeView{mode})
	case mode == "":
		return a.print("each relay follows its own relay.mode\n")
	}
	return a.print("mode: " + mode + "\n")
}
