package checks

import (
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/waybillhq/waybill/reconcile"
)

// A connection that is closed because too many lie idle costs PostgreSQL a new
// process, for each range of a run.
func TestRangesDoNotConnectAnew(t *testing.T) {
	dir := t.TempDir()
	shop := filepath.Join(dir, "shop.db")
	db, err := sql.Open("sqlite", "file:"+shop)
	if err != nil {
		t.Fatal(err)
	}
	for _, statement := range []string{
		`CREATE TABLE w (id TEXT PRIMARY KEY, v INTEGER NOT NULL)`, `CREATE TABLE l (id TEXT PRIMARY KEY, v INTEGER NOT NULL)`,
		`INSERT INTO w (id, v) WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 2000) SELECT printf('K%05d', n), 1 FROM n`,
		`INSERT INTO l (id, v) SELECT id, v FROM w`,
	} {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "check.yaml")
	text := fmt.Sprintf(`
databases: {shop: {kind: sqlite, dsn: %q}}
checks:
  orders: {key: [id], write: {database: shop, table: w, version: v}, log: {database: shop, table: l, version: v}, chunk_rows: 10}
`, shop)
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := Load(name)
	if err != nil {
		t.Fatal(err)
	}
	check := file.Checks["orders"]
	opened, err := file.Open(t.Context(), check, false)
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	engine, err := reconcile.New(*check, opened.Databases, nil)
	if err != nil {
		t.Fatal(err)
	}
	report, err := engine.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if report.Keys != 2000 || report.Coverage.Ranges < 1 {
		t.Fatalf("compared %d keys: %s", report.Keys, report.Summary())
	}
	if closed := opened.Databases["shop"].DB.Stats().MaxIdleClosed; closed != 0 {
		t.Errorf("%d connections were closed for being idle", closed)
	}
}

// What a driver says of a DSN that it cannot read may repeat parts of it.
func TestSecretsAreKnownOfADatabaseThatDoesNotOpen(t *testing.T) {
	for kind, dsn := range map[string]string{
		"postgres": "postgres://auditor:hunter2hunter2@db:port/shop",
		"mysql":    "auditor:hunter2hunter2@tcp(db:3306)/shop?parseTime=perhaps",
	} {
		file := &File{Databases: map[string]*Database{"shop": {Kind: kind, DSN: dsn}}}
		check := &reconcile.Check{Name: "orders", Write: &reconcile.Table{Database: "shop"}}
		opened, err := file.Open(t.Context(), check, false)
		if err == nil || !slices.Contains(opened.Secrets, "hunter2hunter2") || len(opened.Databases) > 0 {
			t.Errorf("%s: got %+v, %v", kind, opened, err)
		}
	}
}
