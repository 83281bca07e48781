package accounts

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/waybillhq/waybill/reconcile"
)

// The names need quotes, and the values are written as each database likes.
const (
	createRow = `CREATE TABLE {q}Sales-EU Order{q} (
		{q}order{q} {text} NOT NULL PRIMARY KEY, status {text}, amount {decimal}, due {time}, meta {json},
		version INTEGER NOT NULL, updated_at {time} NOT NULL)`
	createLog = `CREATE TABLE {q}log{q} (
		seq INTEGER NOT NULL PRIMARY KEY, event_id {text} NOT NULL, {q}order{q} {text} NOT NULL, kind {text} NOT NULL, version INTEGER NOT NULL,
		state {text} NOT NULL, body {json} NOT NULL, at {time} NOT NULL)`
	createRead = `CREATE TABLE {q}read{q} (
		id {text} NOT NULL PRIMARY KEY, status {text}, amount {decimal}, due {time}, meta {json},
		version INTEGER NOT NULL, last_event {text}, updated_at {time})`
)

func ordersCheck() *reconcile.Check {
	return &reconcile.Check{
		Name: "orders", Key: []reconcile.KeyPart{{Name: "order"}},
		Write: &reconcile.Table{Database: "write", Table: "Sales-EU Order", Version: "version", UpdatedAt: "updated_at"},
		Log: &reconcile.Log{
			Table: reconcile.Table{Database: "write", Table: "log", Version: "version", EventID: "event_id"},
			State: "state", CreatedAt: "at", Type: "kind", Deletes: []string{"deleted"}, Payload: "body",
		},
		Read: &reconcile.Table{Database: "read", Table: "read", Key: []string{"id"}, Version: "version", EventID: "last_event", UpdatedAt: "updated_at"},
		Compare: []reconcile.Column{
			{Name: "status"},
			{Name: "amount", Log: "money.amount", As: reconcile.KindNumber},
			{Name: "due", As: reconcile.KindTime},
			{Name: "meta", As: reconcile.KindJSON},
		},
		Exemption: time.Hour, Deadline: time.Minute, Confirm: []time.Duration{0}, ChunkRows: 3,
	}
}

// orders are two arms with n versions of each key, all equal.
type orders struct {
	t           *testing.T
	write, read reconcile.Database
	seq         int
}

const fraction = ".123456"

func (o *orders) text(d reconcile.Database, at time.Time) string {
	return "'" + at.UTC().Format("2006-01-02 15:04:05") + fraction + map[reconcile.Dialect]string{reconcile.Postgres: "+00", reconcile.SQLite: "Z"}[d.Dialect] + "'"
}

func (o *orders) put(key string, versions int) {
	past, due := time.Now().Add(-3*time.Hour), time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	for v := 1; v <= versions; v++ {
		o.event(key, v, "changed", "SENT", past)
	}
	exec(o.t, o.write, fmt.Sprintf("INSERT INTO {q}Sales-EU Order{q} VALUES ('%s', 'PAID', -0.0 + 1.10, %s, '{\"b\": 1.0, \"a\": [1, 2]}', %d, %s)",
		key, o.text(o.write, due), versions, o.text(o.write, past)))
	exec(o.t, o.read, fmt.Sprintf("INSERT INTO {q}read{q} VALUES ('%s', 'PAID', 1.1, %s, '{\"a\":[1,2],\"b\":1}', %d, '%s-%d', NULL)",
		key, o.text(o.read, due), versions, key, versions))
}

func (o *orders) event(key string, version int, kind, state string, at time.Time) {
	o.seq++
	body := `{"status": "PAID", "money": {"amount": "1.100"}, "due": "2026-05-01T14:00:00` + fraction + `+02:00", "meta": {"b": 1, "a": [1, 2]}}`
	exec(o.t, o.write, fmt.Sprintf("INSERT INTO {q}log{q} VALUES (%d, '%s-%d', '%s', '%s', %d, '%s', '%s', %s)",
		o.seq, key, version, key, kind, version, state, body, o.text(o.write, at)))
}

func newOrders(t *testing.T, write, read reconcile.Database) *orders {
	exec(t, write, createRow, createLog)
	exec(t, read, createRead)
	o := &orders{t: t, write: write, read: read}
	for _, key := range []string{"_a", "-b", "A", "a", "Z", "z", "1", "a b", "ä"} {
		o.put(key, 2)
	}
	return o
}

func TestEqualArmsHaveNoFinding(t *testing.T) {
	eachPair(t, func(t *testing.T, write, read reconcile.Database) {
		newOrders(t, write, read)
		for _, rows := range []int{1, 3, 1000} {
			check := ordersCheck()
			check.ChunkRows = rows
			report := run(t, check, write, read)
			if got := listed(report); got != "" || report.Keys != 9 || !report.Coverage.Complete || report.Healed != 0 {
				t.Errorf("chunks of %d: %d keys, healed %d, findings:\n%s", rows, report.Keys, report.Healed, report.Text())
			}
			if report.Rows != (reconcile.RowCounts{Write: 9, Log: 18, Read: 9}) {
				t.Errorf("rows: %+v", report.Rows)
			}
		}
	})
}

func TestEachPlantedFaultHasItsVerdict(t *testing.T) {
	eachPair(t, func(t *testing.T, write, read reconcile.Database) {
		o := newOrders(t, write, read)
		past, now := time.Now().Add(-3*time.Hour), time.Now().Add(-10*time.Second)
		plant := func(d reconcile.Database, key string, statements ...string) {
			o.put(key, 2)
			exec(t, d, statements...)
		}
		plant(write, "f01", "DELETE FROM {q}log{q} WHERE event_id = 'f01-2'")
		plant(write, "f02", "UPDATE {q}log{q} SET state = 'DEAD' WHERE event_id = 'f02-2'")
		plant(write, "f03", "UPDATE {q}Sales-EU Order{q} SET status = 'VOID' WHERE {q}order{q} = 'f03'")
		plant(write, "f04", "UPDATE {q}log{q} SET body = '{\"status\": \"VOID\", \"money\": {\"amount\": 1.1}, \"due\": \"2026-05-01T12:00:00.123456Z\", \"meta\": {\"a\": [1, 2], \"b\": 1}}' WHERE event_id = 'f04-2'")
		plant(write, "f05", "DELETE FROM {q}Sales-EU Order{q} WHERE {q}order{q} = 'f05'")
		plant(read, "f06", "DELETE FROM {q}read{q} WHERE id = 'f06'")
		plant(read, "f07", "UPDATE {q}read{q} SET amount = 1.11 WHERE id = 'f07'")
		plant(read, "f08", "UPDATE {q}read{q} SET version = 1 WHERE id = 'f08'")
		plant(read, "f09", "UPDATE {q}read{q} SET version = 3 WHERE id = 'f09'")
		exec(t, read, "INSERT INTO {q}read{q} (id, version) VALUES ('f10', 1)")
		plant(write, "f11", "DELETE FROM {q}log{q} WHERE event_id = 'f11-1'") // found only with density
		plant(write, "f12", "UPDATE {q}Sales-EU Order{q} SET status = NULL WHERE {q}order{q} = 'f12'")
		plant(write, "f13", "UPDATE {q}Sales-EU Order{q} SET amount = 7, updated_at = '2001-01-01 00:00:00' WHERE {q}order{q} = 'f13'")
		plant(read, "f14", "UPDATE {q}read{q} SET status = '' WHERE id = 'f14'")
		o.event("f15", 1, "changed", "SENT", past) // a deleted row, and one that its delete did not reach
		o.event("f15", 2, "deleted", "SENT", past)
		o.event("f16", 1, "changed", "SENT", past)
		o.event("f16", 2, "deleted", "SENT", past)
		exec(t, read, "INSERT INTO {q}read{q} (id, version) VALUES ('f16', 1)")
		plant(write, "f17", "UPDATE {q}Sales-EU Order{q} SET version = 3 WHERE {q}order{q} = 'f17'")
		o.event("f17", 3, "changed", "PENDING", now)
		plant(write, "f18", "UPDATE {q}Sales-EU Order{q} SET version = 3 WHERE {q}order{q} = 'f18'")
		o.event("f18", 3, "changed", "PENDING", past)
		plant(write, "f19", "UPDATE {q}Sales-EU Order{q} SET version = 3 WHERE {q}order{q} = 'f19'")
		o.event("f19", 3, "changed", "SENT", now)

		want := strings.Join([]string{
			"MISSING_EVENT f01", "MISSING_EVENT f02", "MISSING_EVENT f18", "ORPHAN_EVENT f05",
			"MISMATCH_WRITE f03", "MISMATCH_WRITE f04", "MISMATCH_WRITE f12", "MISMATCH_WRITE f13",
			"MISMATCH_READ f04", "MISMATCH_READ f06", "MISMATCH_READ f07", "MISMATCH_READ f08", "MISMATCH_READ f09", "MISMATCH_READ f10", "MISMATCH_READ f14", "MISMATCH_READ f16",
			"IN_FLIGHT f17", "IN_FLIGHT f19",
		}, "\n") + "\n"
		report := run(t, ordersCheck(), write, read)
		if got := listed(report); got != want {
			t.Errorf("got:\n%s\nwant:\n%s\n%s", got, want, report.Text())
		}
		check := ordersCheck()
		check.Density = "every_version"
		if got := listed(run(t, check, write, read)); !strings.Contains(got, "MISSING_EVENT f11\n") {
			t.Errorf("with density the gap is missing:\n%s", got)
		}

		// The rebuild mends the read side, where the log allows it.
		rebuilt, err := engine(t, ordersCheck(), write, read).Rebuild(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		refused := ""
		for _, r := range rebuilt.Refused {
			refused += r.Key + " "
		}
		if refused != "f01 f09 f10 " {
			t.Errorf("refused %s, want f01 f09 f10: %+v", refused, rebuilt)
		}
		after := listed(run(t, ordersCheck(), write, read))
		var left []string
		for line := range strings.Lines(after) {
			if strings.HasPrefix(line, "MISMATCH_READ") {
				left = append(left, strings.TrimSpace(line))
			}
		}
		if got := strings.Join(left, ", "); got != "MISMATCH_READ f09, MISMATCH_READ f10" {
			t.Errorf("after the rebuild: %s", got)
		}
	})
}
