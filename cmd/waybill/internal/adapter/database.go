package adapter

import (
	"context"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"strings"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/cmd/waybill/internal/config"
	"github.com/waybillhq/waybill/store/mysql"
	"github.com/waybillhq/waybill/store/postgres"
	"github.com/waybillhq/waybill/store/sqlite"
)

func openSQLite(ctx context.Context, c config.Store) (Store, error) {
	st, err := sqlite.Open(ctx, c.DSN, &sqlite.Config{Names: c.Names.Store(), NoTrigger: c.NoTrigger, Head: c.Head})
	if err != nil { // not st: a nil *sqlite.Store would not be a nil Store
		return nil, err
	}
	return st, nil
}

func openPostgres(ctx context.Context, c config.Store) (Store, error) {
	st, err := postgres.Open(ctx, c.DSN, &postgres.Config{Names: c.Names.Store(), NoTrigger: c.NoTrigger, Head: c.Head})
	if err != nil {
		return nil, err
	}
	return st, nil
}

func openMySQL(ctx context.Context, c config.Store) (Store, error) {
	st, err := mysql.Open(ctx, c.DSN, &mysql.Config{Names: c.Names.Store(), NoTrigger: c.NoTrigger, Head: c.Head})
	if err != nil {
		return nil, err
	}
	return st, nil
}

// mustExist refuses a SQLite file that is not there: opening it would make an
// empty one, and a mistyped path would look like an empty outbox.
func mustExist(kind, dsn string) error {
	if kind != "sqlite" {
		return nil
	}
	file := sqliteFile(dsn)
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		return &waybill.Error{Op: "open", Key: file, Err: fs.ErrNotExist, Hint: "is the path right? waybill migrate makes the file"}
	}
	return nil
}

func sqliteFile(dsn string) string {
	path, isURI := strings.CutPrefix(dsn, "file:")
	path, _, _ = strings.Cut(path, "?")
	if !isURI {
		return path
	}
	if rest, ok := strings.CutPrefix(path, "//"); ok {
		path = "/" + strings.TrimLeft(rest, "/")
	}
	if plain, err := url.PathUnescape(path); err == nil {
		return plain
	}
	return path
}

// Describe names a store for people, without what is secret in its DSN.
func Describe(c config.Store) string {
	if c.Kind == "sqlite" {
		return "sqlite " + sqliteFile(c.DSN)
	}
	return c.Kind + " " + config.Redact(c.DSN, nil)
}
