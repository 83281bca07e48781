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
	Status  statusCmd  `cmd:"" help:"Show the queue, the lanes and the relays."`
	Trace   traceCmd   `cmd:"" help:"Follow an event, or the events of a key, to every consumer."`
	Demo    demoCmd    `cmd:"" help:"Watch events survive crashes and an outage, and the proof. About 15 s."`
	Version versionCmd `cmd:"" help:"Print the version."`
}

// app is what commands share.
type app struct {
	ctx     context.Context
	cli     *cli
	stdout  io.Writer
	stderr  io.Writer
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

// printJSON writes one value as indented JSON.
func (a *app) printJSON(value any) error {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	_, err = a.stdout.Write(append(text, '\n'))
	return err
}
