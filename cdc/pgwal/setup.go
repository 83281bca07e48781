package pgwal

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/waybillhq/waybill/cdc"
)

// table is the outbox as the log names it.
type table struct {
	schema, name string
	partitioned  bool
	unlogged     bool
	hasID        bool
}

const findTableSQL = `
SELECT n.nspname, c.relname, c.relkind = 'p', c.relpersistence <> 'p',
       EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'id' AND NOT a.attisdropped)
FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = to_regclass($1)`

func (s *Source) findTable(ctx context.Context) (t table, err error) {
	err = s.pool.QueryRow(ctx, s.sql(findTableSQL), s.table()).Scan(&t.schema, &t.name, &t.partitioned, &t.unlogged, &t.hasID)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return t, cdc.Refused(cdc.Misconfigured, fmt.Errorf("there is no table %s", s.table()), "run the migration, and check the schema and the names in the configuration")
	case err != nil:
		return t, classify("find the table", err)
	case t.unlogged:
		return t, cdc.Refused(cdc.Misconfigured, fmt.Errorf("%s is not written to the log", s.table()), "ALTER TABLE "+s.table()+" SET LOGGED")
	case !t.hasID:
		return t, cdc.Refused(cdc.Misconfigured, fmt.Errorf("%s has no column id", s.table()), "run the migration")
	}
	return t, nil
}

// publication is one as it is.
type publication struct {
	inserts, truncates bool
	viaRoot            bool
	listed             bool // our table is in it
	hasID, filtered    bool
}

// A partitioned table that is published as its partitions is not listed.
const readPublicationSQL = `
SELECT p.pubinsert, p.pubtruncate, p.pubviaroot, t.tablename IS NOT NULL,
       COALESCE('id' = ANY (t.attnames), false), t.rowfilter IS NOT NULL
FROM pg_publication p
LEFT JOIN pg_publication_tables t ON t.pubname = p.pubname AND t.schemaname = $2 AND t.tablename = $3
WHERE p.pubname = $1`

// The log is asked for ids and for nothing else, so that no payload leaves the
// server. A publication of inserts lets tables without a replica identity be
// updated and deleted from as before.
const createPublicationSQL = `
CREATE PUBLICATION {publication} FOR TABLE {event} ("id")
WITH (publish = 'insert, truncate', publish_via_partition_root = true)`

// Setup checks the server, and creates the publication if there is none.
func (s *Source) Setup(ctx context.Context) error {
	server, err := s.look(ctx)
	if err != nil {
		return err
	}
	if err := s.checkServer(server); err != nil {
		return err
	}
	t, err := s.findTable(ctx)
	if err != nil {
		return err
	}
	p, err := s.readPublication(ctx, t)
	if err == nil && p == nil {
		if err = s.createPublication(ctx); err == nil {
			p, err = s.readPublication(ctx, t)
		}
	}
	if err != nil {
		return err
	}
	return s.checkPublication(t, p)
}

// checkServer says what no attempt could get around.
func (s *Source) checkServer(server server) error {
	switch {
	case server.recovering:
		return cdc.Refused(cdc.Misconfigured, errors.New("the server is a standby"), "connect to the primary")
	case server.walLevel != "logical":
		return cdc.Refused(cdc.Misconfigured, fmt.Errorf("wal_level is %s", server.walLevel), "ALTER SYSTEM SET wal_level = logical, and restart the server")
	case s.config.Failover && server.version < versionOfFailover:
		return cdc.Refused(cdc.Misconfigured, fmt.Errorf("a slot that fails over needs PostgreSQL 17, the server is %d", server.version/10000), "switch failover off")
	}
	return nil
}

func (s *Source) readPublication(ctx context.Context, t table) (*publication, error) {
	var p publication
	err := s.pool.QueryRow(ctx, s.sql(readPublicationSQL), s.config.Publication, t.schema, t.name).
		Scan(&p.inserts, &p.truncates, &p.viaRoot, &p.listed, &p.hasID, &p.filtered)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, classify("read the publication", err)
	}
	return &p, nil
}

// lockWait is how long a statement waits for a lock on the table.
const lockWait = 3 * time.Second

func (s *Source) createPublication(ctx context.Context) error {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return classify("create the publication", err)
	}
	defer conn.Release()
	watch := s.watchBlockers(ctx, conn.Conn().PgConn().PID())
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, fmt.Sprintf("SET LOCAL lock_timeout = %d", lockWait.Milliseconds())); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, s.sql(createPublicationSQL))
		return err
	})
	blockers := watch.stop()
	switch codeOf(err) {
	case codeDuplicateObject, codeUniqueViolation:
		return nil // another process was faster
	case codeNoRight:
		return cdc.Refused(cdc.Misconfigured, fmt.Errorf("create the publication: %w", err), "let the owner of the table run: "+s.publicationText())
	case codeLockTimeout:
		return cdc.Refused(cdc.Blocked, fmt.Errorf("create the publication: %s: %w", blockers, err), "end what holds the table, or wait")
	}
	if err == nil {
		s.config.Logger.InfoContext(ctx, "publication created", "publication", s.config.Publication, "table", s.table())
	}
	return classify("create the publication", err)
}

// checkPublication says what is wrong with a publication that somebody else made,
// and with which statement to put it right.
func (s *Source) checkPublication(t table, p *publication) error {
	name := quoteIdentifier(s.config.Publication)
	wrong := func(what, hint string) error {
		return cdc.Refused(cdc.Misconfigured, fmt.Errorf("publication %s %s", name, what), hint)
	}
	switch {
	case p == nil:
		return wrong("does not exist", s.publicationText())
	case !p.listed && t.partitioned && !p.viaRoot:
		return wrong("does not publish inserts into partitions as of "+s.table(), "ALTER PUBLICATION "+name+" SET (publish_via_partition_root = true)")
	case !p.listed:
		return wrong("does not publish "+s.table(), "ALTER PUBLICATION "+name+" ADD TABLE "+s.table()+` ("id"), or choose another publication`)
	case !p.inserts:
		return wrong("does not publish inserts", "ALTER PUBLICATION "+name+" SET (publish = 'insert, truncate')")
	case !p.hasID:
		return wrong("does not publish the column id", "ALTER PUBLICATION "+name+" SET TABLE "+s.table()+` ("id")`)
	case p.filtered:
		return wrong("leaves rows out", "ALTER PUBLICATION "+name+" SET TABLE "+s.table()+` ("id")`)
	}
	return nil
}

func (s *Source) publicationText() string { return oneLine(s.sql(createPublicationSQL)) }
