// Command stock is a consumer in a process of its own: for each order of the
// topic it reserves stock, once. The guide starts it.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/waybillhq/waybill/broker/natsjs"
	"github.com/waybillhq/waybill/examples/inventory"
	"github.com/waybillhq/waybill/inbox"
	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/sqlite"
)

func main() {
	database := flag.String("database", "stock.db", "SQLite file of the consumer")
	nats := flag.String("nats", cmp.Or(os.Getenv("NATS_URL"), "nats://127.0.0.1:4222"), "URL of the broker")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := consume(ctx, *database, *nats); err != nil {
		fmt.Fprintln(os.Stderr, "stock:", err)
		os.Exit(1)
	}
}

const reservationTable = `CREATE TABLE IF NOT EXISTS reservation (order_id TEXT NOT NULL, event_id TEXT NOT NULL)`

// consume handles events until ctx ends, and then finishes what it has begun.
func consume(ctx context.Context, database, url string) (err error) {
	st, err := sqlite.Open(ctx, database, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	if err := st.Migrate(ctx, store.MigrateOptions{SkipOutbox: true}); err != nil {
		return err
	}
	if _, err := st.DB().ExecContext(ctx, reservationTable); err != nil {
		return err
	}
	nats, err := natsjs.Open(ctx, url, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, nats.Close()) }()
	p, err := inbox.New(st, nats, inventory.Reserve, &inbox.Config{
		Group: "stock", Topics: []string{"orders"},
		Baseline: inbox.BaselineFirstSeen, // orders have changed before their first event
	})
	if err != nil {
		return err
	}
	return p.Run(ctx)
}
