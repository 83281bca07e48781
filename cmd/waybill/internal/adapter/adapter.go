// Package adapter holds the one map from a configured name to the adapter of
// that name.
package adapter

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
	"github.com/waybillhq/waybill/cmd/waybill/internal/config"
	"github.com/waybillhq/waybill/store"
)

// Store is a database with everything that the commands ask of one.
type Store interface {
	store.Outbox
	store.HeldReader
	store.Effects
	store.Forgetter
}

// Broker is a broker as the relay uses it. Its Close also ends what the
// adapter started.
type Broker interface {
	broker.Publisher
	broker.TopicAdmin
	broker.Checker
}

var stores = map[string]func(context.Context, config.Store) (Store, error){
	"sqlite":   openSQLite,
	"postgres": openPostgres,
	"mysql":    openMySQL,
	"mariadb":  openMySQL,
}

var brokers = map[string]func(context.Context, config.Broker, *slog.Logger) (Broker, error){
	"nats":     openNATS,
	"embedded": openEmbedded,
	"kafka":    openKafka,
}

// CreateStore opens the store that is configured, making its file if it is
// missing.
func CreateStore(ctx context.Context, c config.Store) (Store, error) {
	return openStore(ctx, "store", c, true)
}

// OpenStore opens the store that is configured, which must exist.
func OpenStore(ctx context.Context, c config.Store) (Store, error) {
	return openStore(ctx, "store", c, false)
}

// OpenInbox opens a consumer's database.
func OpenInbox(ctx context.Context, name string, c config.Inbox) (Store, error) {
	return openStore(ctx, "inboxes."+name, config.Store{Kind: c.Kind, DSN: c.DSN, Names: c.Names}, false)
}

func openStore(ctx context.Context, path string, c config.Store, create bool) (Store, error) {
	open, ok := stores[c.Kind]
	if !ok {
		return nil, unknown(path+".kind", c.Kind, stores)
	}
	if c.DSN == "" {
		return nil, missing(path + ".dsn")
	}
	if scheme, kinds := schemeOf(c.DSN); kinds != nil && !slices.Contains(kinds, c.Kind) {
		return nil, &ConfigError{&waybill.Error{
			Op: "configure", Key: path + ".dsn", Err: fmt.Errorf("begins with %s, but %s.kind is %s", scheme, path, c.Kind),
			Hint: "set " + path + ".kind to " + kinds[0],
		}}
	}
	if !create {
		if err := mustExist(c.Kind, c.DSN); err != nil {
			return nil, err
		}
	}
	return open(ctx, c)
}

// schemeOf returns how a DSN begins that is a server's URL, and the kinds of
// store that take it, the likeliest first. A path says nothing about its kind.
func schemeOf(dsn string) (scheme string, kinds []string) {
	switch name, _, found := strings.Cut(dsn, "://"); {
	case !found:
		return "", nil
	case name == "postgres", name == "postgresql":
		return name + "://", []string{"postgres"}
	case name == "mysql":
		return name + "://", []string{"mysql", "mariadb"}
	case name == "mariadb":
		return name + "://", []string{"mariadb", "mysql"}
	}
	return "", nil
}

// OpenBroker opens the broker that is configured.
func OpenBroker(ctx context.Context, c config.Broker, logger *slog.Logger) (Broker, error) {
	open, ok := brokers[c.Kind]
	if !ok {
		return nil, unknown("broker.kind", c.Kind, brokers)
	}
	return open(ctx, c, logger)
}

// ConfigError is a setting without which nothing can be opened.
type ConfigError struct{ Err error }

// Error implements error.
func (e *ConfigError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *ConfigError) Unwrap() error { return e.Err }

func unknown[V any](key, kind string, known map[string]V) error {
	names := strings.Join(slices.Sorted(maps.Keys(known)), ", ")
	return &ConfigError{&waybill.Error{Op: "configure", Key: key, Err: fmt.Errorf("there is no %q; known: %s", kind, names)}}
}

func missing(key string) error {
	variable := "WAYBILL_" + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
	return &ConfigError{&waybill.Error{
		Op: "configure", Key: key, Err: fmt.Errorf("not given"),
		Hint: "write it to waybill.yaml (waybill init makes one), or set " + variable,
	}}
}
