package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/outbox"
	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/postgres"
)

// site is a database made for one arm.
type site struct {
	admin string
	name  string
	dsn   string
	store *postgres.Store
	pool  *pgxpool.Pool
}

func newSite(ctx context.Context, admin, kind string) (*site, error) {
	u, err := url.Parse(admin)
	if err != nil {
		return nil, errors.New("--store is not a URL")
	}
	s := &site{admin: admin, name: newName(kind)}
	u.Path = "/" + s.name
	s.dsn = u.String()
	if err := s.onServer(ctx, "CREATE DATABASE "+s.name); err != nil {
		return nil, err
	}
	if s.store, err = postgres.Open(ctx, s.dsn, nil); err != nil {
		return nil, errors.Join(err, s.close(ctx))
	}
	s.pool = s.store.Pool()
	return s, nil
}

func (s *site) onServer(ctx context.Context, statement string) error {
	conn, err := pgx.Connect(ctx, s.admin)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, statement)
	return errors.Join(err, conn.Close(ctx))
}

func (s *site) close(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	if s.store != nil {
		_ = s.store.Close()
	}
	return s.onServer(ctx, "DROP DATABASE IF EXISTS "+s.name+" WITH (FORCE)")
}

// migrate makes waybill's tables; without a queue only the events are written,
// which is all that a reader of the database's log needs.
func (s *site) migrate(ctx context.Context, queue bool) error {
	return s.store.Migrate(ctx, store.MigrateOptions{SkipInbox: true, NoTrigger: !queue})
}

func (s *site) append(ctx context.Context, events []waybill.Event) error {
	tx, err := s.pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	return outbox.NewCommitWriter(s.store, nil).AppendCommit(ctx, tx, events...)
}

func (s *site) fill(ctx context.Context, from *source, n int) error {
	if err := from.batches(n, func(events []waybill.Event) error { return s.append(ctx, events) }); err != nil {
		return err
	}
	for _, table := range []string{"outbox_pending", "outbox_event", "outbox_receipt"} {
		if _, err := s.pool.Exec(ctx, "VACUUM (ANALYZE) "+table); err != nil {
			return err
		}
	}
	return nil
}

// insert adds events in one transaction, and returns what commits it.
func (s *site) insert(ctx context.Context, from *source, n int) (commit func() error, err error) {
	tx, err := s.pool.Begin(ctx)
	if err != nil {
		return nil, err
	}
	writer := outbox.NewWriter(s.store, nil)
	if err := from.batches(n, func(events []waybill.Event) error { return writer.Append(ctx, tx, events...) }); err != nil {
		return nil, errors.Join(err, tx.Rollback(ctx))
	}
	return func() error { return tx.Commit(ctx) }, nil
}

// version names the database.
func (s *site) version(ctx context.Context) string {
	var version string
	_ = s.pool.QueryRow(ctx, `SELECT current_setting('server_version')`).Scan(&version)
	version, _, _ = strings.Cut(version, " ")
	return fmt.Sprintf("PostgreSQL %s", version)
}

// durable says whether commits wait for the disk.
func (s *site) durable(ctx context.Context) string {
	var fsync, commit string
	_ = s.pool.QueryRow(ctx, `SELECT current_setting('fsync'), current_setting('synchronous_commit')`).Scan(&fsync, &commit)
	return fmt.Sprintf("fsync=%s, synchronous_commit=%s", fsync, commit)
}
