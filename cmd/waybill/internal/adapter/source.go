package adapter

import (
	"cmp"
	"fmt"
	"log/slog"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/cdc"
	"github.com/waybillhq/waybill/cdc/mybinlog"
	"github.com/waybillhq/waybill/cdc/pgwal"
	"github.com/waybillhq/waybill/cmd/waybill/internal/config"
	"github.com/waybillhq/waybill/store"
)

// Source is a database's own log. Its Close ends what the adapter started.
type Source interface {
	cdc.Source
	Close() error
}

var sources = map[string]func(*config.Config, *slog.Logger) (Source, error){
	"postgres": openWAL,
	"mysql":    openBinlog,
	"mariadb":  openBinlog,
}

// OpenSource returns the log of the outbox's database, and nil where that has none
// that others may read. It connects to nothing yet.
func OpenSource(c *config.Config, logger *slog.Logger) (Source, error) {
	open, ok := sources[c.Store.Kind]
	if !ok {
		if c.Relay.Mode == store.ModeCDC {
			return nil, &ConfigError{NoLog(c.Store.Kind)}
		}
		return nil, nil
	}
	source, err := open(c, logger)
	if err != nil {
		return nil, &ConfigError{err}
	}
	return source, nil
}

// NoLog refuses a mode that needs a log.
func NoLog(kind string) error {
	return &waybill.Error{
		Op: "configure", Key: "relay.mode", Err: fmt.Errorf("%s has no log that can be read", kind), Hint: "the mode can only be poll",
	}
}

func openWAL(c *config.Config, logger *slog.Logger) (Source, error) {
	source, err := pgwal.New(cmp.Or(c.CDC.DSN, c.Store.DSN), &pgwal.Config{
		Slot: c.CDC.Slot, Publication: c.CDC.Publication, Failover: c.CDC.Failover,
		Schema: c.Store.Names.Schema, Event: c.Store.Names.Event, Logger: logger,
	})
	if err != nil { // not source: a nil *pgwal.Source would not be a nil Source
		return nil, err
	}
	return source, nil
}

func openBinlog(c *config.Config, logger *slog.Logger) (Source, error) {
	source, err := mybinlog.New(cmp.Or(c.CDC.DSN, c.Store.DSN), &mybinlog.Config{
		Schema: c.Store.Names.Schema, Event: c.Store.Names.Event, Meta: c.Store.Names.Meta,
		ServerID: uint32(c.CDC.ServerID), Heartbeat: c.CDC.Heartbeat, Logger: logger,
	})
	if err != nil {
		return nil, err
	}
	return source, nil
}
