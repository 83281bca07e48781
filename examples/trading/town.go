package main

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
	"github.com/waybillhq/waybill/broker/natsjs"
	"github.com/waybillhq/waybill/examples/trading/chain"
	"github.com/waybillhq/waybill/inbox"
	"github.com/waybillhq/waybill/inbox/guard"
	"github.com/waybillhq/waybill/outbox"
	"github.com/waybillhq/waybill/relay"
	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/sqlite"
)

// town is the services of the chain, each with a database of its own, and the
// broker between them.
type town struct {
	shop       *chain.Shop
	coupons    chain.CouponService
	orders     *sqlite.Store // of the shop
	fulfilment *sqlite.Store
	books      *sqlite.Store // of points and ledger
	workers    []worker
	closers    []func() error
}

// worker is a relay or a consumer.
type worker interface {
	Run(ctx context.Context) error
}

func build(ctx context.Context, folder string) (t *town, err error) {
	t = &town{}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.close())
		}
	}()
	open := func(name string, tables ...[]string) (*sqlite.Store, error) {
		st, err := sqlite.Open(ctx, filepath.Join(folder, name), nil)
		if err != nil {
			return nil, err
		}
		t.closers = append(t.closers, st.Close)
		if err := st.Migrate(ctx, store.MigrateOptions{}); err != nil {
			return nil, err
		}
		for _, table := range slices.Concat(tables...) {
			if _, err := st.DB().ExecContext(ctx, table); err != nil {
				return nil, err
			}
		}
		return st, nil
	}
	if t.orders, err = open("shop.db", chain.ShopTables); err != nil {
		return nil, err
	}
	if t.fulfilment, err = open("fulfilment.db", chain.FulfilmentTables); err != nil {
		return nil, err
	}
	if t.books, err = open("books.db", chain.PointsTables, chain.LedgerTables); err != nil {
		return nil, err
	}
	server, err := natsjs.StartEmbedded(ctx, &natsjs.EmbeddedConfig{StoreDir: filepath.Join(folder, "nats")})
	if err != nil {
		return nil, err
	}
	t.closers = append(t.closers, server.Close)
	nats, err := natsjs.Open(ctx, server.ClientURL(), nil)
	if err != nil {
		return nil, err
	}
	t.closers = append(t.closers, nats.Close)
	if err := nats.EnsureTopics(ctx, []broker.TopicSpec{{Name: chain.OrdersTopic}, {Name: chain.FulfilmentsTopic}}); err != nil {
		return nil, err
	}
	return t, t.hire(nats)
}

// hire makes the relays and the consumers.
func (t *town) hire(nats *natsjs.Broker) error {
	quiet := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	var wake []func()
	for _, st := range []*sqlite.Store{t.orders, t.fulfilment} {
		r, err := relay.New(st, nats, &relay.Config{Logger: quiet})
		if err != nil {
			return err
		}
		t.workers = append(t.workers, r)
		wake = append(wake, r.Wake)
	}
	t.shop = &chain.Shop{
		DB: t.orders.DB(), Dialect: guard.SQLite, Wake: wake[0],
		Writer: outbox.NewWriter[store.SQLTx](t.orders, &outbox.Config{Source: "/shop"}),
	}
	over := func(tx *sql.Tx) guard.Tx { return guard.Over(tx, guard.SQLite) }
	writer := outbox.NewWriter[store.SQLTx](t.fulfilment, &outbox.Config{Source: "/fulfilment"})
	told := func(ctx context.Context, tx *sql.Tx, events ...waybill.Event) error {
		return writer.Append(ctx, tx, events...)
	}
	for _, c := range []struct {
		group   string
		st      *sqlite.Store
		handler inbox.Handler[*sql.Tx]
		topics  []string
		effects []inbox.Effect
	}{
		{"fulfilment", t.fulfilment, chain.On(chain.Fulfil(chain.FulfilmentsTopic), over, told), []string{chain.OrdersTopic}, []inbox.Effect{chain.CouponEffect(&t.coupons)}},
		{"points", t.books, chain.On(chain.AddPoints, over, nil), []string{chain.OrdersTopic}, nil},
		{"ledger", t.books, chain.On(chain.Book, over, nil), []string{chain.OrdersTopic, chain.FulfilmentsTopic}, nil},
	} {
		p, err := inbox.New(c.st, nats, c.handler, &inbox.Config{Group: c.group, Topics: c.topics, Effects: c.effects, Logger: quiet})
		if err != nil {
			return err
		}
		t.workers = append(t.workers, p)
	}
	return nil
}

// run runs the relays and the consumers until ctx ends.
func (t *town) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	failed := make([]error, len(t.workers))
	var all sync.WaitGroup
	for i, w := range t.workers {
		all.Go(func() {
			defer cancel()
			failed[i] = w.Run(ctx)
		})
	}
	all.Wait()
	return errors.Join(failed...)
}

func (t *town) close() (err error) {
	for _, closer := range slices.Backward(t.closers) {
		err = errors.Join(err, closer())
	}
	return err
}
