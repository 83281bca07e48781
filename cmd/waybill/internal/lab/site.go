package lab

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/reconcile"
)

// dsnFile holds the address of a server's database beside the check: it may
// have a password, so only its owner may read it.
const dsnFile = "library.dsn"

// site is where a lab's tables are: in a file of its folder, or on a server in
// a database that is made for this lab.
type site struct {
	dialect  reconcile.Dialect
	open     func() (*sql.DB, error)
	dsn      string // of a server's database
	database string // that was made on the server; empty for a file
	drop     func(ctx context.Context) error
}

// newSite makes the place. Store is the URL of a server, or empty.
func newSite(ctx context.Context, dir, store string) (*site, error) {
	if store == "" {
		return fileSite(dir)
	}
	u, err := CheckStore(store)
	if err != nil {
		return nil, err
	}
	name := "waybill_lab_" + strings.ToLower(rand.Text()[:10])
	if u.Scheme == "postgres" || u.Scheme == "postgresql" {
		return postgresSite(ctx, u, name)
	}
	return mysqlSite(ctx, u, name)
}

// CheckStore says what is wrong with the URL of a server, without showing it.
func CheckStore(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err == nil && u.Host != "" {
		switch u.Scheme {
		case "postgres", "postgresql", "mysql", "mariadb":
			return u, nil
		}
	}
	return nil, &waybill.Error{
		Op: "lab", Key: "--store", Err: errors.New("no server that the lab knows"),
		Hint: "write postgres://, mysql:// or mariadb://, then USER:PASSWORD@HOST:PORT/DATABASE",
	}
}

func fileSite(dir string) (*site, error) {
	name := filepath.Join(dir, LoansFile)
	for _, suffix := range []string{"", "-journal", "-wal", "-shm"} {
		if err := os.Remove(name + suffix); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
	}
	return &site{
		dialect: reconcile.SQLite, open: func() (*sql.DB, error) { return sql.Open("sqlite", name) },
		drop: func(context.Context) error { return nil },
	}, nil
}

func postgresSite(ctx context.Context, u *url.URL, name string) (*site, error) {
	own := *u
	own.Path, own.RawPath = "/"+name, ""
	admin := func() (*sql.DB, error) { return sql.Open("pgx", u.String()) }
	s := &site{
		dialect: reconcile.Postgres, database: name, dsn: own.String(),
		open: func() (*sql.DB, error) { return sql.Open("pgx", own.String()) },
		drop: func(ctx context.Context) error {
			return execute(ctx, admin, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)")
		},
	}
	return s, s.create(ctx, admin, "CREATE DATABASE "+name)
}

func mysqlSite(ctx context.Context, u *url.URL, name string) (*site, error) {
	settings := mysql.NewConfig()
	settings.Net, settings.Addr, settings.User = "tcp", u.Host, u.User.Username()
	if u.Port() == "" {
		settings.Addr += ":3306"
	}
	settings.Passwd, _ = u.User.Password()
	at := func(database string) (*sql.DB, error) {
		there := settings.Clone()
		there.DBName = database
		connector, err := mysql.NewConnector(there)
		if err != nil {
			return nil, err
		}
		return sql.OpenDB(connector), nil
	}
	admin := func() (*sql.DB, error) { return at("information_schema") } // which everybody may use
	own := settings.Clone()
	own.DBName = name
	s := &site{
		dialect: reconcile.Dialect(u.Scheme), database: name, dsn: own.FormatDSN(),
		open: func() (*sql.DB, error) { return at(name) },
		drop: func(ctx context.Context) error { return execute(ctx, admin, "DROP DATABASE IF EXISTS "+name) },
	}
	return s, s.create(ctx, admin, "CREATE DATABASE "+name+" CHARACTER SET utf8mb4")
}

func (s *site) create(ctx context.Context, admin func() (*sql.DB, error), statement string) error {
	if err := execute(ctx, admin, statement); err != nil {
		return &waybill.Error{
			Op: "make the lab's database", Key: s.database, Err: err,
			Hint: "the lab is in a database of its own; give it an account that may create one",
		}
	}
	return nil
}

func execute(ctx context.Context, open func() (*sql.DB, error), statements ...string) (err error) {
	db, err := open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	for _, statement := range statements {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// dropLimit bounds the cleaning up, which also takes place after Ctrl-C.
const dropLimit = 30 * time.Second

func (s *site) leave(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dropLimit)
	defer cancel()
	if err := s.drop(ctx); err != nil {
		return &waybill.Error{Op: "drop the lab's database", Key: s.database, Err: err, Hint: "drop it by hand; nothing else uses it"}
	}
	return nil
}

// entry is the database as the file of checks names it.
func (s *site) entry() string {
	if s.database == "" {
		return "{kind: sqlite, dsn: " + LoansFile + "}"
	}
	return fmt.Sprintf("{kind: %s, dsn_file: %s} # the database %s", s.dialect, dsnFile, s.database)
}

var (
	agoMark = regexp.MustCompile(`\{ago (\d+)\}`)
	words   = map[reconcile.Dialect]struct{ text, time, ago string }{
		reconcile.SQLite:   {"TEXT", "TEXT", "strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '-$1 minutes')"},
		reconcile.Postgres: {"text", "timestamptz", "clock_timestamp() - interval '$1 minutes'"},
		reconcile.MySQL:    {"varchar(191) COLLATE utf8mb4_bin", "datetime(6)", "UTC_TIMESTAMP(6) - INTERVAL $1 MINUTE"},
		reconcile.MariaDB:  {"varchar(191) COLLATE utf8mb4_bin", "datetime(6)", "UTC_TIMESTAMP(6) - INTERVAL $1 MINUTE"},
	}
)

// statements returns those of a script, one by one, in the site's dialect.
func (s *site) statements(script string) (all []string) {
	w := words[s.dialect]
	script = strings.NewReplacer("{text}", w.text, "{time}", w.time).Replace(script)
	script = agoMark.ReplaceAllString(script, w.ago)
	for _, statement := range strings.Split(script, ";\n") {
		if statement = strings.TrimSpace(statement); statement != "" {
			all = append(all, statement)
		}
	}
	return all
}
