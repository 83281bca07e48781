package main

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"os"

	"github.com/waybillhq/waybill/cmd/waybill/internal/adapter"
	"github.com/waybillhq/waybill/cmd/waybill/internal/config"
	"github.com/waybillhq/waybill/cmd/waybill/internal/logging"
)

// cli is the command line.
type cli struct {
	Config string   `short:"c" placeholder:"FILE" env:"WAYBILL_CONFIG" help:"Configuration file. Default: waybill.yaml, if it exists."`
	Set    []string `placeholder:"PATH=VALUE" sep:"none" help:"Change one setting, as relay.lease_ttl=2s. May be repeated; goes before file and variables."`

	Init    initCmd    `cmd:"" help:"Write a commented waybill.yaml."`
	Migrate migrateCmd `cmd:"" help:"Create the tables, or bring them to this release."`
	Relay   relayCmd   `cmd:"" help:"Send events from the outbox to the broker until stopped."`
	Serve   serveCmd   `cmd:"" help:"Relay, clean up, and answer probes and Prometheus until stopped."`
	Status  statusCmd  `cmd:"" help:"Show the queue, the lanes and the relays."`
	Trace   traceCmd   `cmd:"" help:"Follow an event, or the events of a key, to every consumer."`
	Dead    deadCmd    `cmd:"" help:"Decide about events that cannot be sent."`
	Held    heldCmd    `cmd:"" help:"Decide about events that a consumer keeps aside."`
	Replay  replayCmd  `cmd:"" help:"Send settled events once more."`
	Cleanup cleanupCmd `cmd:"" help:"Remove settled events that are old enough, once."`
	Doctor  doctorCmd  `cmd:"" help:"Look for what does not heal by itself, and say what to do."`
	Audit   auditCmd   `cmd:"" help:"Show who did what, and why."`
	Schema  schemaCmd  `cmd:"" help:"Find what a change of a schema breaks."`
	Shown   configCmd  `cmd:"" name:"config" help:"Show the settings in force, without their secrets."`
	Lab     labCmd     `cmd:"" help:"Build a small world with known faults and reconcile it."`
	Bench   benchCmd   `cmd:"" help:"Measure this machine with servers of yours, in a database of its own."`
	Demo    demoCmd    `cmd:"" help:"Watch events survive crashes and an outage, and the proof. About 15 s."`
	Version versionCmd `cmd:"" help:"Print the version."`

	Reconcile  reconcileCmd      `cmd:"" help:"Compare business table, event log and read model."`
	Delivery   deliveryCmd       `cmd:"" help:"Let Debezium send events in the place of relays, or take that back."`
	Connector  debeziumConfigCmd `cmd:"" name:"debezium-config" help:"Print a connector that sends this outbox's events."`
	Completion completionCmd     `cmd:"" help:"Print a script that completes commands and flags in a shell."`
	Complete   completeCmd       `cmd:"" name:"__complete" hidden:""`
}

// app is what commands share.
type app struct {
	ctx     context.Context
	cli     *cli
	stdout  io.Writer
	stderr  io.Writer
	screen  screen
	secrets []string
	logger  *slog.Logger
}

// load reads the configuration. From here on no output shows its secrets.
func (a *app) load() (*config.Loaded, error) {
	loaded, err := config.Load(config.Source{File: a.cli.Config, Environ: os.Environ(), Set: a.cli.Set})
	if err != nil {
		return nil, usageError{err}
	}
	a.secrets = loaded.Secrets
	a.stdout = &config.RedactWriter{To: a.stdout, Secrets: a.secrets}
	if a.logger, err = logging.New(a.stderr, loaded.Log.Level, loaded.Log.Format, a.secrets); err != nil {
		return nil, usageError{err}
	}
	for _, warning := range loaded.Warnings {
		a.logger.Warn(warning)
	}
	return loaded, nil
}

// openStore opens the outbox's database.
func (a *app) openStore(loaded *config.Loaded) (adapter.Store, error) {
	return adapter.OpenStore(a.ctx, loaded.Store)
}

// open reads the configuration and opens the outbox's database.
func (a *app) open() (*config.Loaded, adapter.Store, error) {
	loaded, err := a.load()
	if err != nil {
		return nil, nil, err
	}
	st, err := a.openStore(loaded)
	return loaded, st, err
}

// print writes text for people.
func (a *app) print(text string) error {
	_, err := io.WriteString(a.stdout, text)
	return err
}

// printJSON writes one value as indented JSON.
func (a *app) printJSON(value any) error {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	_, err = a.stdout.Write(append(text, '\n'))
	return err
}
