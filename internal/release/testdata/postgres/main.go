// A program that takes the core and one adapter. It is compiled; run without a
// server it says that there is none.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/jackc/pgx/v5"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/outbox"
	"github.com/waybillhq/waybill/store/postgres"
)

func main() {
	if err := run(context.Background(), os.Getenv("DATABASE_URL")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, dsn string) error {
	db, err := postgres.Open(ctx, dsn, nil)
	if err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	tx, err := conn.Begin(ctx)
	if err != nil {
		return err
	}
	event := waybill.Event{ID: waybill.NewID(), Type: "OrderPaid", Topic: "orders", AggregateType: "order", AggregateID: "O-1", Data: []byte(`{}`)}
	if err := outbox.NewWriter(db, nil).Append(ctx, tx, event); err != nil {
		return err
	}
	return tx.Commit(ctx)
}
