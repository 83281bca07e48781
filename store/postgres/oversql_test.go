package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/internal/testenv"
	"github.com/waybillhq/waybill/store/postgres"
)

// A handler over pgx works in a transaction of database/sql, and cannot end it.
func TestAHandlerWorksOverDatabaseSQL(t *testing.T) {
	db, err := sql.Open("pgx", testenv.Postgres15(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	ctx := t.Context()
	conn, err := db.Conn(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	for _, statement := range []string{"BEGIN", "CREATE TEMP TABLE noted (id TEXT) ON COMMIT DROP"} {
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			t.Fatal(err)
		}
	}
	refused := errors.New("no")
	handle := postgres.OverSQL(func(ctx context.Context, tx pgx.Tx, event waybill.Event) error {
		if err := tx.Commit(ctx); err == nil {
			t.Error("a handler has committed what is not its own")
		}
		if _, err := tx.Exec(ctx, "INSERT INTO noted VALUES ($1)", event.ID); err != nil {
			return err
		}
		inner, err := tx.Begin(ctx)
		if err != nil {
			return err
		}
		if _, err := inner.Exec(ctx, "INSERT INTO noted VALUES ('undone')"); err != nil {
			return err
		}
		if err := inner.Rollback(ctx); err != nil {
			return err
		}
		if event.ID == "b" {
			return refused
		}
		return nil
	})
	if err := handle(ctx, conn, waybill.Event{ID: "a"}); err != nil {
		t.Error(err)
	}
	if err := handle(ctx, conn, waybill.Event{ID: "b"}); !errors.Is(err, refused) {
		t.Errorf("got %v, want the handler's error", err)
	}
	var noted string
	if err := conn.QueryRowContext(ctx, "SELECT string_agg(id, ',' ORDER BY id) FROM noted").Scan(&noted); err != nil || noted != "a,b" {
		t.Errorf("in the transaction there is %q, %v", noted, err)
	}
	if _, err := conn.ExecContext(ctx, "ROLLBACK"); err != nil {
		t.Error(err)
	}
	if err := handle(ctx, db, waybill.Event{ID: "c"}); err == nil {
		t.Error("a pool was taken for a connection")
	}
}
