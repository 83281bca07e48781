package bench

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/waybillhq/waybill"
)

// site is where the tables are: in a file of a folder that is removed, or in a
// database of a server that is dropped, whatever else the server has.
type site struct {
	kind string
	dsn  string
	drop func(context.Context) error
}

func newSite(ctx context.Context, text string) (*site, error) {
	kind, u, err := storeOf(text)
	if err != nil {
		return nil, err
	}
	switch kind {
	case kindSQLite:
		return fileSite()
	case kindPostgres:
		return postgresSite(ctx, u)
	}
	return mysqlSite(ctx, kind, u)
}

func fileSite() (*site, error) {
	dir, err := os.MkdirTemp("", "waybill-bench-")
	if err != nil {
		return nil, err
	}
	return &site{kind: kindSQLite, dsn: filepath.Join(dir, "bench.db"), drop: func(context.Context) error { return os.RemoveAll(dir) }}, nil
}

const (
	createPostgresSQL = `CREATE DATABASE %s`
	dropPostgresSQL   = `DROP DATABASE IF EXISTS %s WITH (FORCE)`
	createMySQLSQL    = `CREATE DATABASE %s CHARACTER SET utf8mb4`
	dropMySQLSQL      = `DROP DATABASE IF EXISTS %s`
)

func postgresSite(ctx context.Context, u *url.URL) (*site, error) {
	name := newName()
	s := &site{kind: kindPostgres, dsn: within(u, name)}
	s.drop = func(ctx context.Context) error {
		return onServer(ctx, kindPostgres, u.String(), "", fmt.Sprintf(dropPostgresSQL, name))
	}
	return s, onServer(ctx, kindPostgres, u.String(), hintCreate, fmt.Sprintf(createPostgresSQL, name))
}

func mysqlSite(ctx context.Context, kind string, u *url.URL) (*site, error) {
	name := newName()
	admin := within(u, "information_schema") // which everybody may use
	s := &site{kind: kind, dsn: within(u, name)}
	s.drop = func(ctx context.Context) error {
		return onServer(ctx, kind, admin, "", fmt.Sprintf(dropMySQLSQL, name))
	}
	return s, onServer(ctx, kind, admin, hintCreate, fmt.Sprintf(createMySQLSQL, name))
}

// within returns a server's URL with another database.
func within(u *url.URL, database string) string {
	at := *u
	at.Path, at.RawPath = "/"+database, ""
	return at.String()
}

const hintCreate = "the tables are made in a database of their own; give an account that may create one"

// onServer runs a statement. The hint is for whoever may not run it.
func onServer(ctx context.Context, kind, dsn, hint, statement string) error {
	d, err := openDatabase(ctx, kind, dsn)
	if err != nil {
		return err
	}
	if _, err = d.db.ExecContext(ctx, statement); err != nil {
		err = &waybill.Error{Op: strings.ToLower(statement), Err: err, Hint: hint}
	}
	return errors.Join(err, d.close())
}

// dropLimit bounds the cleaning up, which also takes place after Ctrl-C.
const dropLimit = time.Minute

func (s *site) leave(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dropLimit)
	defer cancel()
	return s.drop(ctx)
}
