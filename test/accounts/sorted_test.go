package accounts

import (
	"strings"
	"testing"
	"time"

	"github.com/waybillhq/waybill/reconcile"
)

// TestAnIndexThatIsNotTakenIsNotAskedFor has a log that MariaDB rather sorts than
// to follow its index. The report must not advise to make one.
func TestAnIndexThatIsNotTakenIsNotAskedFor(t *testing.T) {
	d := open(t, reconcile.MariaDB)
	exec(t, d,
		"CREATE TABLE w (id VARCHAR(40) COLLATE utf8mb4_nopad_bin NOT NULL PRIMARY KEY, status {text}, version INTEGER NOT NULL)",
		"CREATE TABLE l (n INTEGER NOT NULL PRIMARY KEY, id VARCHAR(40) COLLATE utf8mb4_nopad_bin NOT NULL, kind {text} NOT NULL, status {text}, version INTEGER NOT NULL, INDEX (id))",
		"INSERT INTO w SELECT CONCAT('k', 10000 + seq), 's', 1 FROM seq_1_to_3000",
		"INSERT INTO l SELECT seq, CONCAT('k', 10000 + seq), 'loan', 's', 1 FROM seq_1_to_3000",
		"ANALYZE TABLE w", "ANALYZE TABLE l")
	check := &reconcile.Check{
		Name: "sorted", Key: []reconcile.KeyPart{{Name: "id"}}, Compare: []reconcile.Column{{Name: "status"}},
		Write:   &reconcile.Table{Database: "write", Table: "w", Version: "version"},
		Log:     &reconcile.Log{Table: reconcile.Table{Database: "write", Table: "l", Version: "version", Where: map[string]string{"kind": "loan"}}},
		Confirm: []time.Duration{}, ChunkRows: 100,
	}
	report := run(t, check, d, d)
	if listed(report) != "" || report.Keys != 3000 {
		t.Errorf("%d keys:\n%s", report.Keys, report.Text())
	}
	if len(report.Unindexed) != 1 || !strings.Contains(report.Unindexed[0], "though an index") || strings.Contains(report.Unindexed[0], "CREATE INDEX") {
		t.Errorf("read as a whole: %q", report.Unindexed)
	}
}
