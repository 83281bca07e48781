package demo

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/waybillhq/waybill"
)

// The kinds of database that the demo plays on, as the configuration names them.
const (
	kindSQLite   = "sqlite"
	kindPostgres = "postgres"
	kindMySQL    = "mysql"
	kindMariaDB  = "mariadb"
)

var storeSchemes = map[string]string{
	"postgres": kindPostgres, "postgresql": kindPostgres, "mysql": kindMySQL, "mariadb": kindMariaDB,
}

// site says where the tables are: for SQLite in two files of the folder, on a
// server in a database that is made for this one performance, so that whatever
// is there already is out of reach.
type site struct {
	kind              string
	orders, inventory string // DSNs
	// database is the one that was made on the server; empty for SQLite.
	database string
	// qualifier goes before the inventory's tables in a query of the orders' database.
	qualifier string
	drop      func(context.Context) error
}

// fileSite is two files in a folder.
func fileSite(dir string) *site {
	return &site{
		kind: kindSQLite, orders: filepath.Join(dir, ordersFile), inventory: filepath.Join(dir, inventoryFile),
		qualifier: "inventory.", drop: func(context.Context) error { return nil },
	}
}

// checkStore says what is wrong with the URL of a server, without showing it.
func checkStore(text string) (kind string, u *url.URL, err error) {
	const hint = "write postgres://, mysql:// or mariadb://, then USER:PASSWORD@HOST:PORT/DATABASE"
	if u, err = url.Parse(text); err != nil {
		return "", nil, &waybill.Error{Op: "demo", Key: "--store", Err: errors.New("it is not a URL"), Hint: hint}
	}
	kind, ok := storeSchemes[u.Scheme]
	if !ok || u.Host == "" {
		return "", nil, &waybill.Error{Op: "demo", Key: "--store", Err: errors.New("no server that the demo knows"), Hint: hint}
	}
	return kind, u, nil
}

// serverSite makes databases on a server. The name is used by nobody else.
func serverSite(ctx context.Context, text, name string) (*site, error) {
	kind, u, err := checkStore(text)
	if err != nil {
		return nil, err
	}
	if kind == kindPostgres {
		return postgresSite(ctx, u, name)
	}
	return mysqlSite(ctx, kind, u, name)
}

// postgresSite makes one database with a schema for the inventory, since a
// query cannot reach from one database into another.
func postgresSite(ctx context.Context, u *url.URL, name string) (*site, error) {
	s := &site{kind: kindPostgres, database: name, qualifier: "inventory.", orders: within(u, name, ""), inventory: within(u, name, "inventory")}
	s.drop = func(ctx context.Context) error {
		return onServer(ctx, kindPostgres, u.String(), "", "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)")
	}
	if err := onServer(ctx, kindPostgres, u.String(), hintCreate, "CREATE DATABASE "+name); err != nil {
		return nil, err
	}
	if err := onServer(ctx, kindPostgres, s.orders, hintCreate, "CREATE SCHEMA inventory"); err != nil {
		return nil, errors.Join(err, s.drop(ctx))
	}
	return s, nil
}

const selectVersion = `SELECT VERSION()`

// mysqlSite makes a database for each service. Their text compares as that of
// the outbox does, so that the two can be joined.
func mysqlSite(ctx context.Context, kind string, u *url.URL, name string) (*site, error) {
	other := name + "_inventory"
	s := &site{kind: kind, database: name, qualifier: other + ".", orders: within(u, name, ""), inventory: within(u, other, "")}
	admin := within(u, "information_schema", "") // which everybody may use
	s.drop = func(ctx context.Context) error {
		return onServer(ctx, kind, admin, "", "DROP DATABASE IF EXISTS "+name, "DROP DATABASE IF EXISTS "+other)
	}
	a, err := openArm(ctx, kind, admin)
	if err != nil {
		return nil, err
	}
	var version string
	err = errors.Join(a.db.QueryRowContext(ctx, selectVersion).Scan(&version), a.close())
	if err != nil {
		return nil, err
	}
	collation := "utf8mb4_0900_bin"
	if strings.Contains(strings.ToLower(version), "mariadb") {
		collation = "utf8mb4_nopad_bin"
	}
	const create = "CREATE DATABASE %s CHARACTER SET utf8mb4 COLLATE %s"
	if err := onServer(ctx, kind, admin, hintCreate, fmt.Sprintf(create, name, collation), fmt.Sprintf(create, other, collation)); err != nil {
		return nil, errors.Join(err, s.drop(ctx))
	}
	return s, nil
}

// within returns a server's URL with another database, and schema if there is one.
func within(u *url.URL, database, schema string) string {
	at := *u
	at.Path, at.RawPath = "/"+database, ""
	if schema != "" {
		query := at.Query()
		query.Set("search_path", schema)
		at.RawQuery = query.Encode()
	}
	return at.String()
}

const hintCreate = "the demo plays in a database of its own; give it an account that may create one"

// onServer runs statements. The hint is for whoever may not run them.
func onServer(ctx context.Context, kind, dsn, hint string, statements ...string) error {
	a, err := openArm(ctx, kind, dsn)
	if err != nil {
		return err
	}
	for _, statement := range statements {
		if _, err = a.db.ExecContext(ctx, statement); err != nil {
			err = &waybill.Error{Op: strings.ToLower(statement), Err: err, Hint: hint}
			break
		}
	}
	return errors.Join(err, a.close())
}

// dropLimit bounds the cleaning up, which also takes place after Ctrl-C.
const dropLimit = 30 * time.Second

func (s *site) leave(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dropLimit)
	defer cancel()
	if err := s.drop(ctx); err != nil {
		return &waybill.Error{Op: "drop the demo's database", Key: s.database, Err: err, Hint: "drop it by hand; nothing else uses it"}
	}
	return nil
}

// script returns the queries of the examination, to be run in the orders' database.
func (s *site) script() string {
	if s.kind == kindSQLite {
		return verifySQL
	}
	_, queries, _ := strings.Cut(verifySQL, attachLine)
	return fmt.Sprintf("-- What became of the demo's events, counted on the server.\n-- In the database %s:\n", s.database) +
		strings.ReplaceAll(queries, "inventory.", s.qualifier)
}

// examine opens what the queries are asked of.
func (s *site) examine(ctx context.Context) (conn *sql.Conn, closeAll func(), err error) {
	if s.kind == kindSQLite {
		return examineFiles(ctx, s.orders, s.inventory)
	}
	a, err := openArm(ctx, s.kind, s.orders)
	if err != nil {
		return nil, nil, err
	}
	if conn, err = a.db.Conn(ctx); err != nil {
		return nil, nil, errors.Join(err, a.close())
	}
	return conn, func() { _ = conn.Close(); _ = a.close() }, nil
}

// describe names the site for people.
func (s *site) describe() string {
	if s.kind == kindSQLite {
		return ordersFile + " and " + inventoryFile
	}
	return fmt.Sprintf("the %s database %s", s.kind, s.database)
}

// inspector is a command that runs the script in file.
func (s *site) inspector(file string) string {
	switch s.kind {
	case kindPostgres:
		return "psql " + s.database + " -f " + file + "    # with your options for host and user"
	case kindMySQL, kindMariaDB:
		return s.kind + " " + s.database + " < " + file + "    # with your options for host and user"
	}
	return "sqlite3 " + ordersFile + " < " + file
}

// newName is used by nobody else.
func newName() string { return "waybill_demo_" + strings.ToLower(rand.Text()[:10]) }
