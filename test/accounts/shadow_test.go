package accounts

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/waybillhq/waybill/reconcile"
)

// shelves is a log of states and a read model, in two databases or in one.
func shelves(t *testing.T, dialect reconcile.Dialect) (log, read reconcile.Database, check *reconcile.Check) {
	read = open(t, dialect)
	if log = read; dialect != reconcile.MySQL {
		log = open(t, reconcile.SQLite)
	}
	makeShelves(t, log, read)
	return log, read, shelvesCheck()
}

func makeShelves(t *testing.T, log, read reconcile.Database) {
	exec(t, log, "CREATE TABLE shelf_log (event_id {text} NOT NULL PRIMARY KEY, shelf {text} NOT NULL, version INTEGER NOT NULL, kind {text} NOT NULL, content {text}, at {time} NOT NULL)")
	exec(t, read,
		"CREATE TABLE {q}shelf view{q} (id {text} NOT NULL, content {text}, version INTEGER NOT NULL, remark {text}, PRIMARY KEY (id))",
		"CREATE INDEX shelf_by_content ON {q}shelf view{q} (content)")
}

func shelvesCheck() *reconcile.Check {
	return &reconcile.Check{
		Name: "shelves", Key: []reconcile.KeyPart{{Name: "shelf"}}, Compare: []reconcile.Column{{Name: "content"}},
		Log: &reconcile.Log{
			Table:     reconcile.Table{Database: "write", Table: "shelf_log", Version: "version", EventID: "event_id"},
			CreatedAt: "at", Type: "kind", Deletes: []string{"removed"},
		},
		Read:    &reconcile.Table{Database: "read", Table: "shelf view", Key: []string{"id"}, Version: "version"},
		Confirm: []time.Duration{0}, ChunkRows: 7,
	}
}

func logShelf(t *testing.T, log reconcile.Database, shelf string, version int, kind string) {
	exec(t, log, fmt.Sprintf("INSERT INTO shelf_log VALUES ('%s-%d', '%s', %d, '%s', 'c%d', '2026-01-01 00:00:00')", shelf, version, shelf, version, kind, version))
}

func shelvesOf(t *testing.T, read reconcile.Database) string {
	t.Helper()
	rows, err := read.DB.QueryContext(t.Context(), types[read.Dialect].Replace("SELECT id, content, version, remark FROM {q}shelf view{q} ORDER BY id"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	var b strings.Builder
	for rows.Next() {
		var id string
		var content, remark sql.NullString
		var version int
		if err := rows.Scan(&id, &content, &version, &remark); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s=%s v%d %s\n", id, content.String, version, remark.String)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// tablesOf counts those that a rebuild may have left.
func leftBy(t *testing.T, read reconcile.Database) int {
	t.Helper()
	query := "SELECT COUNT(*) FROM information_schema.tables WHERE table_name LIKE '%waybill%'"
	switch read.Dialect {
	case reconcile.SQLite:
		query = "SELECT COUNT(*) FROM sqlite_master WHERE name LIKE '%waybill%'"
	case reconcile.MySQL, reconcile.MariaDB:
		query += " AND table_schema = DATABASE()"
	}
	var n int
	if err := read.DB.QueryRowContext(t.Context(), query).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestACopyTakesThePlaceOfTheReadModel(t *testing.T) {
	for _, dialect := range ledgers {
		t.Run(string(dialect), func(t *testing.T) {
			log, read, check := shelves(t, dialect)
			for i := range 20 {
				name := fmt.Sprintf("s%02d", i)
				logShelf(t, log, name, 1, "put")
				logShelf(t, log, name, 2, "put")
				exec(t, read, fmt.Sprintf("INSERT INTO {q}shelf view{q} VALUES ('%s', 'c2', 2, 'kept')", name))
			}
			for _, fault := range []string{
				"DELETE FROM {q}shelf view{q} WHERE id = 's03'",
				"UPDATE {q}shelf view{q} SET content = 'x' WHERE id = 's04'",
				"UPDATE {q}shelf view{q} SET version = 1, content = 'c1' WHERE id = 's05'",
				"UPDATE {q}shelf view{q} SET version = 9 WHERE id = 's06'",
				"INSERT INTO {q}shelf view{q} VALUES ('s99', 'x', 1, 'extra')",
			} {
				exec(t, read, fault)
			}
			logShelf(t, log, "s07", 3, "removed")
			want := ""
			for i := range 20 {
				switch i {
				case 3:
					want += "s03=c2 v2 \n"
				case 6:
					want += "s06=c2 v9 kept\n"
				case 7:
				default:
					want += fmt.Sprintf("s%02d=c2 v2 kept\n", i)
				}
			}
			want += "s99=x v1 extra\n"
			rebuilt, err := engine(t, check, log, read).Rebuild(t.Context(), &reconcile.RebuildConfig{Shadow: true})
			if err != nil {
				t.Fatal(err)
			}
			if got := shelvesOf(t, read); got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
			if !rebuilt.Swapped || rebuilt.Written != 3 || rebuilt.Removed != 1 || rebuilt.Unchanged != 15 || len(rebuilt.Refused) != 2 || rebuilt.Refused[0].Key != "s06" {
				t.Errorf("rebuilt %+v", rebuilt)
			}
			if n := leftBy(t, read); n != 0 {
				t.Errorf("%d tables are left", n)
			}
			// It is the same kind of table: keys, indexes and their names.
			if _, err := read.DB.ExecContext(t.Context(), types[dialect].Replace("INSERT INTO {q}shelf view{q} VALUES ('s01', 'x', 1, '')")); err == nil {
				t.Error("the key is gone")
			}
			drop := "DROP INDEX shelf_by_content"
			if dialect == reconcile.MySQL || dialect == reconcile.MariaDB {
				drop += " ON `shelf view`"
			}
			exec(t, read, drop)
		})
	}
}

// The consumer goes on while the copy is made: what it applied before, during
// and after the swap is all there.
func TestACopyFollowsALiveConsumer(t *testing.T) {
	for _, dialect := range ledgers {
		t.Run(string(dialect), func(t *testing.T) {
			log, read, check := shelves(t, dialect)
			const keys = 30
			for i := range keys {
				logShelf(t, log, fmt.Sprintf("s%02d", i), 1, "put")
			}
			consume := func(ctx context.Context, shelf string, version int) error {
				upsert := "INSERT INTO {q}shelf view{q} (id, content, version) VALUES ('%[1]s', 'c%[2]d', %[2]d) ON CONFLICT (id) DO UPDATE SET content = excluded.content, version = excluded.version WHERE {q}shelf view{q}.version < excluded.version"
				if dialect == reconcile.MySQL || dialect == reconcile.MariaDB {
					upsert = "INSERT INTO {q}shelf view{q} (id, content, version) VALUES ('%[1]s', 'c%[2]d', %[2]d) ON DUPLICATE KEY UPDATE content = IF(version < VALUES(version), VALUES(content), content), version = GREATEST(version, VALUES(version))"
				}
				_, err := read.DB.ExecContext(ctx, types[dialect].Replace(fmt.Sprintf(upsert, shelf, version)))
				return err
			}
			stop, done := make(chan struct{}), make(chan error, 1)
			version := 1
			go func() {
				defer close(done)
				for {
					select {
					case <-stop:
						return
					default:
					}
					version++
					for i := range keys {
						shelf := fmt.Sprintf("s%02d", i)
						if _, err := log.DB.ExecContext(context.Background(), fmt.Sprintf("INSERT INTO shelf_log VALUES ('%s-%d', '%s', %d, 'put', 'c%d', '2026-01-01 00:00:00')", shelf, version, shelf, version, version)); err != nil {
							done <- err
							return
						}
						if err := consume(context.Background(), shelf, version); err != nil {
							done <- fmt.Errorf("the consumer failed: %w", err)
							return
						}
					}
				}
			}()
			for range 2 {
				rebuilt, err := engine(t, check, log, read).Rebuild(t.Context(), &reconcile.RebuildConfig{Shadow: true})
				if err != nil || !rebuilt.Swapped || len(rebuilt.Refused) > 0 {
					t.Errorf("rebuilt %+v, %v", rebuilt, err)
				}
			}
			close(stop)
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			want := ""
			for i := range keys {
				want += fmt.Sprintf("s%02d=c%d v%d \n", i, version, version)
			}
			if got := shelvesOf(t, read); got != want {
				t.Errorf("after v%d got\n%s", version, got)
			}
			if n := leftBy(t, read); n != 0 {
				t.Errorf("%d tables are left", n)
			}
		})
	}
}

func TestACopyIsRefusedWhereItWouldLoseSomething(t *testing.T) {
	hindrances := map[reconcile.Dialect][]string{
		reconcile.Postgres: {
			"CREATE VIEW on_it AS SELECT id FROM {q}shelf view{q}|DROP VIEW on_it|the view on_it",
			"CREATE TABLE child (id TEXT REFERENCES {q}shelf view{q})|DROP TABLE child|the foreign key child_id_fkey",
			"CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'; CREATE TRIGGER tr AFTER INSERT ON {q}shelf view{q} FOR EACH ROW EXECUTE FUNCTION f()|DROP TRIGGER tr ON {q}shelf view{q}|the trigger tr",
			"ALTER TABLE {q}shelf view{q} ADD n SERIAL|ALTER TABLE {q}shelf view{q} DROP n|numbered column n",
		},
		reconcile.MySQL: {
			"CREATE TRIGGER tr AFTER INSERT ON {q}shelf view{q} FOR EACH ROW SET @x = 1|DROP TRIGGER tr|the trigger tr",
			"CREATE TABLE child (id {text}, CONSTRAINT fk FOREIGN KEY (id) REFERENCES {q}shelf view{q} (id))|DROP TABLE child|the foreign key fk",
			"ALTER TABLE {q}shelf view{q} ADD n INTEGER AS (version + 1)|ALTER TABLE {q}shelf view{q} DROP n|computed column n",
		},
		reconcile.SQLite: {
			"CREATE TRIGGER tr AFTER INSERT ON {q}shelf view{q} BEGIN SELECT 1; END|DROP TRIGGER tr|the trigger tr",
			"CREATE TABLE child (id {text} REFERENCES {q}shelf view{q} (id))|DROP TABLE child|the foreign key of child",
		},
	}
	hindrances[reconcile.MariaDB] = hindrances[reconcile.MySQL]
	for dialect, all := range hindrances {
		t.Run(string(dialect), func(t *testing.T) {
			log, read, check := shelves(t, dialect)
			logShelf(t, log, "s1", 1, "put")
			for _, one := range all {
				parts := strings.Split(one, "|")
				exec(t, read, parts[0])
				_, err := engine(t, check, log, read).Rebuild(t.Context(), &reconcile.RebuildConfig{Shadow: true})
				if err == nil || !strings.Contains(err.Error(), parts[2]) {
					t.Errorf("%s: %v", parts[2], err)
				}
				exec(t, read, parts[1])
			}
			rebuilt, err := engine(t, check, log, read).Rebuild(t.Context(), &reconcile.RebuildConfig{Shadow: true})
			if err != nil || rebuilt.Written != 1 || shelvesOf(t, read) != "s1=c1 v1 \n" {
				t.Errorf("once nothing hinders: %+v, %v", rebuilt, err)
			}
		})
	}
}
