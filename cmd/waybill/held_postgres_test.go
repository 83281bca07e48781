//go:build unix

package main

import (
	"os"
	"testing"
)

// The verbs on held events, and their audit, over PostgreSQL.
func TestHeldEventsInPostgres(t *testing.T) {
	t.Parallel()
	server := os.Getenv("WAYBILL_TEST_POSTGRES15")
	if server == "" {
		if os.Getenv("WAYBILL_TEST_REQUIRED") != "" {
			t.Fatal("a PostgreSQL server is required here: set WAYBILL_TEST_POSTGRES15")
		}
		t.Skip("needs a PostgreSQL server: set WAYBILL_TEST_POSTGRES15")
	}
	dsn := newDatabase(t, server)
	s := &shell{t: t, dir: t.TempDir(), env: []string{"WAYBILL_STORE_KIND=postgres", "WAYBILL_STORE_DSN=" + dsn}}
	s.run("migrate --no-outbox", "tables of version 3")
	execute(t, dsn, `INSERT INTO held_event (consumer_group, event_id, topic, event_key, partition, position, event_type, tenant_id,
		aggregate_type, aggregate_id, aggregate_version, state, attempts, first_error, last_error, stack, record_id, record_topic, record_key, record_value)
		VALUES ('stock', 'h1', 'orders', 'O-1', 3, 17, 'OrderPlaced', '', 'order', 'O-1', 1, 'DEAD', 4, 'x', 'no such article', '', 'h1', 'orders', 'O-1', '{}'),
		       ('stock', 'h2', 'orders', 'O-1', 3, 18, 'OrderPaid', '', 'order', 'O-1', 2, 'BLOCKED', 0, '', '', '', 'h2', 'orders', 'O-1', '{}')`)
	s.run("held list", "no such article")
	s.run("held retry h1 --reason mended --actor anna", "h1  retried")
	s.run("held show h1", "RETRY")
	s.run("held skip h1 h2 --reason test --actor anna --json", `"skipped": 2`)
	s.run("held list", "keeps nothing aside")
	s.run("audit list --target h2", "held skip")
	s.run("audit list --verb held", "mended")
}
