package chaos

import (
	"context"
	"database/sql"
	"fmt"
	"testing"

	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/test/chaos/verdict"
	"github.com/waybillhq/waybill/test/lab"
)

// A database is a server, or a primary and its standby, with the producer's
// database "shop" and the consumers' database "back".
type database interface {
	// servers are all that a client may have to ask.
	servers() []*lab.Server
	// dsn is how a process of that name reaches a database at these addresses.
	dsn(addresses []string, name, database string) string
	// admit lets a process of that name in.
	admit(ctx context.Context, name string) error
	// great are the acts that this database can go through, each of which returns
	// once it answers again.
	great() map[string]func() error
	// loseLog takes away what relays have not read of the database's log, and says
	// in which way.
	loseLog(ctx context.Context, detail int) (what string, err error)
	// setMode has all relays poll, or read the log.
	setMode(ctx context.Context, mode string) error
	// ready waits until nothing of an earlier act is left over.
	ready() error
}

var groups = []string{"stock", "points"}

// prepare makes the tables of both databases. trace holds the statements that
// have the database tell who writes to the queue.
func prepare(t *testing.T, shop, back *sql.DB, shopStore, backStore store.Schema, serial string, trace []string) {
	t.Helper()
	if err := shopStore.Migrate(t.Context(), store.MigrateOptions{SkipInbox: true}); err != nil {
		t.Fatal(err)
	}
	if err := backStore.Migrate(t.Context(), store.MigrateOptions{SkipOutbox: true}); err != nil {
		t.Fatal(err)
	}
	run := func(db *sql.DB, statements ...string) {
		t.Helper()
		for _, statement := range statements {
			if _, err := db.ExecContext(t.Context(), statement); err != nil {
				t.Fatalf("%s: %v", statement, err)
			}
		}
	}
	run(shop, verdict.ShopTables(serial)...)
	run(shop, trace...)
	run(back, verdict.BackTables(serial)...)
	for n := range accounts {
		run(shop, fmt.Sprintf(`INSERT INTO account (id) VALUES ('%s')`, accountName(n)))
		for _, group := range groups {
			run(back, fmt.Sprintf(`INSERT INTO model (consumer_group, of_key) VALUES ('%s', '%s')`, group, accountName(n)))
		}
	}
}

func number(ctx context.Context, db *sql.DB, query string) (n int, err error) {
	err = db.QueryRowContext(ctx, query).Scan(&n)
	return n, err
}
