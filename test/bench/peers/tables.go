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
	"github.com/waybillhq/waybill/store/mysql"
	"github.com/waybillhq/waybill/store/postgres"
)

// The databases.
const (
	kindPostgres = "postgres"
	kindMySQL    = "mysql"
)

// site is a database made for one arm.
type site struct {
	kind  string
	admin string
	name  string
	dsn   string
	store *postgres.Store // of PostgreSQL
	pool  *pgxpool.Pool   // the same
	mysql *mysql.Store    // of MySQL
}

func newSite(ctx context.Context, admin, kind string) (*site, error) {
	u, err := url.Parse(admin)
	if err != nil {
		return nil, errors.New("--store is not a URL")
	}
	s := &site{kind: kindPostgres, admin: admin, name: newName(kind)}
	if u.Scheme == kindMySQL {
		s.kind = kindMySQL
	}
	u.Path = "/" + s.name
	s.dsn = u.String()
	if err := s.onServer(ctx, "CREATE DATABASE "+s.name); err != nil {
		return nil, err
	}
	if s.kind == kindMySQL {
		s.mysql, err = mysql.Open(ctx, s.dsn, nil)
	} else if s.store, err = postgres.Open(ctx, s.dsn, nil); err == nil {
		s.pool = s.store.Pool()
	}
	if err != nil {
		return nil, errors.Join(err, s.close(ctx))
	}
	return s, nil
}

func (s *site) onServer(ctx context.Context, statement string) error {
	if s.kind == kindMySQL {
		server, err := mysql.Open(ctx, s.admin, nil)
		if err != nil {
			return err
		}
		_, err = server.DB().ExecContext(ctx, statement)
		return errors.Join(err, server.Close())
	}
	conn, err := pgx.Connect(ctx, s.admin)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, statement)
	return errors.Join(err, conn.Close(ctx))
}

func (s *site) close(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	if s.kind == kindMySQL {
		if s.mysql != nil {
			_ = s.mysql.Close()
		}
		return s.onServer(ctx, "DROP DATABASE IF EXISTS "+s.name)
	}
	if s.store != nil {
		_ = s.store.Close()
	}
	return s.onServer(ctx, "DROP DATABASE IF EXISTS "+s.name+" WITH (FORCE)")
}

// migrate makes waybill's tables; without a queue only the events are written,
// which is all that a reader of the database's log needs.
func (s *site) migrate(ctx context.Context, queue bool) error {
	options := store.MigrateOptions{SkipInbox: true, NoTrigger: !queue}
	if s.kind == kindMySQL {
		return s.mysql.Migrate(ctx, options)
	}
	return s.store.Migrate(ctx, options)
}

func (s *site) append(ctx context.Context, events []waybill.Event) error {
	if s.kind == kindMySQL {
		tx, err := s.mysql.DB().BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		if err := outbox.NewWriter[store.SQLTx](s.mysql, nil).Append(ctx, tx, events...); err != nil {
			return err
		}
		return tx.Commit()
	}
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
	if s.kind == kindMySQL {
		tx, err := s.mysql.DB().BeginTx(ctx, nil)
		if err != nil {
			return nil, err
		}
		writer := outbox.NewWriter[store.SQLTx](s.mysql, nil)
		if err := from.batches(n, func(events []waybill.Event) error { return writer.Append(ctx, tx, events...) }); err != nil {
			return nil, errors.Join(err, tx.Rollback())
		}
		return tx.Commit, nil
	}
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

// compress has MySQL compress what it logs from now on.
func (s *site) compress(ctx context.Context) error {
	if err := s.onServer(ctx, "SET GLOBAL binlog_transaction_compression = ON"); err != nil {
		return err
	}
	opened, err := mysql.Open(ctx, s.dsn, nil) // sessions of before go on without
	if err != nil {
		return err
	}
	_ = s.mysql.Close()
	s.mysql = opened
	return nil
}

// number returns what a query of one number finds.
func (s *site) number(ctx context.Context, query string) (n int, err error) {
	if s.kind == kindMySQL {
		err = s.mysql.DB().QueryRowContext(ctx, query).Scan(&n)
	} else {
		err = s.pool.QueryRow(ctx, query).Scan(&n)
	}
	return n, err
}

// version names the database.
func (s *site) version(ctx context.Context) string {
	var version string
	if s.kind == kindMySQL {
		_ = s.mysql.DB().QueryRowContext(ctx, `SELECT VERSION()`).Scan(&version)
		number, rest, _ := strings.Cut(version, "-")
		if strings.Contains(rest, "MariaDB") {
			return "MariaDB " + number
		}
		return "MySQL " + number
	}
	_ = s.pool.QueryRow(ctx, `SELECT current_setting('server_version')`).Scan(&version)
	version, _, _ = strings.Cut(version, " ")
	return "PostgreSQL " + version
}

// durable says whether commits wait for the disk.
func (s *site) durable(ctx context.Context) string {
	var first, second string
	if s.kind == kindMySQL {
		_ = s.mysql.DB().QueryRowContext(ctx, `SELECT @@innodb_flush_log_at_trx_commit, @@sync_binlog`).Scan(&first, &second)
		return fmt.Sprintf("innodb_flush_log_at_trx_commit=%s, sync_binlog=%s", first, second)
	}
	_ = s.pool.QueryRow(ctx, `SELECT current_setting('fsync'), current_setting('synchronous_commit')`).Scan(&first, &second)
	return fmt.Sprintf("fsync=%s, synchronous_commit=%s", first, second)
}
