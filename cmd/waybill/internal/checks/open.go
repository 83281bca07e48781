package checks

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite" // registers the driver

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/cmd/waybill/internal/config"
	"github.com/waybillhq/waybill/reconcile"
	"github.com/waybillhq/waybill/store/postgres"
)

// Opened are the databases of a check, open.
type Opened struct {
	Databases reconcile.Databases
	Secrets   []string // that no output may show
}

// Close closes all.
func (o *Opened) Close() {
	for _, database := range o.Databases {
		_ = database.DB.Close()
	}
}

// Of is an open database of a kind, as the engine wants it.
func Of(db *sql.DB, kind string) reconcile.Database {
	d := reconcile.Database{DB: db, Dialect: reconcile.Dialect(kind)}
	if d.Dialect == reconcile.Postgres {
		d.Texts = postgres.ReadTexts
	}
	return d
}

// Connect opens a database of a kind as Open does.
func Connect(kind, dsn string, writing bool) (*sql.DB, error) {
	return (&Database{Kind: kind, DSN: dsn}).open(writing)
}

// Open opens the databases that a check names. Unless writing is asked for, a
// SQLite file is opened for reading only; elsewhere transactions are read-only. With
// an error nothing is open, and what is returned has the secrets alone, which the
// error may tell.
func (f *File) Open(ctx context.Context, check *reconcile.Check, writing bool) (*Opened, error) {
	opened := &Opened{Databases: make(reconcile.Databases)}
	for _, name := range named(check) {
		if _, done := opened.Databases[name]; done {
			continue
		}
		database, ok := f.Databases[name]
		if !ok {
			opened.Close()
			return &Opened{Secrets: opened.Secrets}, &waybill.Error{Op: "check", Key: check.Name, Err: fmt.Errorf("there is no database %q", name), Hint: "name it under databases"}
		}
		opened.Secrets = append(opened.Secrets, config.Hidden(database.DSN)...)
		db, err := database.open(writing)
		if err == nil {
			opened.Databases[name] = Of(db, database.Kind)
			err = db.PingContext(ctx)
		}
		if err != nil {
			opened.Close()
			return &Opened{Secrets: opened.Secrets}, &waybill.Error{Op: "open database", Key: name, Err: err}
		}
	}
	return opened, nil
}

func named(check *reconcile.Check) (names []string) {
	if check.Write != nil {
		names = append(names, check.Write.Database)
	}
	if check.Log != nil {
		names = append(names, check.Log.Database)
	}
	if check.Read != nil {
		names = append(names, check.Read.Database)
	}
	if check.Consumer != nil {
		names = append(names, check.Consumer.Database)
	}
	return names
}

// open lets as many connections lie idle as the ranges of a run use at once.
func (d *Database) open(writing bool) (*sql.DB, error) {
	db, err := d.openKind(writing)
	if err == nil {
		db.SetMaxIdleConns(reconcile.Connections)
	}
	return db, err
}

func (d *Database) openKind(writing bool) (*sql.DB, error) {
	switch reconcile.Dialect(d.Kind) {
	case reconcile.SQLite:
		return openSQLite(d.DSN, writing)
	case reconcile.Postgres:
		settings, err := pgx.ParseConfig(d.DSN)
		if err != nil {
			return nil, err
		}
		postgres.ReadInBulk(&settings.Config)
		return stdlib.OpenDB(*settings), nil
	case reconcile.MySQL, reconcile.MariaDB:
		settings, err := mysql.ParseDSN(d.DSN)
		if err != nil {
			return nil, errors.New("the DSN is not of the form user:password@tcp(host:port)/database")
		}
		settings.ParseTime = true // in UTC, whatever the machine's zone is
		if settings.Params == nil {
			settings.Params = make(map[string]string)
		}
		settings.Params["time_zone"] = "'+00:00'"
		connector, err := mysql.NewConnector(settings)
		if err != nil {
			return nil, err
		}
		return sql.OpenDB(connector), nil
	}
	return nil, fmt.Errorf("the kind %q is none of sqlite, postgres, mysql, mariadb", d.Kind)
}

// openSQLite refuses a file that is not there: opening it would make one.
func openSQLite(dsn string, writing bool) (*sql.DB, error) {
	path, options, _ := strings.Cut(strings.TrimPrefix(dsn, "file:"), "?")
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w", path, fs.ErrNotExist)
	}
	pragmas := "_pragma=busy_timeout(10000)"
	if !writing {
		pragmas += "&_pragma=query_only(1)"
	}
	if options != "" {
		pragmas += "&" + options
	}
	return sql.Open("sqlite", "file:"+(&url.URL{Path: path}).EscapedPath()+"?"+pragmas)
}
