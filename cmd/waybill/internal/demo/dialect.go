package demo

import (
	"fmt"
	"strings"
)

// dialect is how a kind of database wants to be spoken to, where the kinds differ.
type dialect struct {
	// words stand for the names in braces in the demo's statements.
	words map[string]string
	// numbered says that parameters are $1, $2 instead of ?.
	numbered bool
}

const (
	upsertStandard = `ON CONFLICT (order_id) DO UPDATE SET qty = excluded.qty, status = excluded.status, version = excluded.version, last_event_id = excluded.last_event_id`
	upsertMySQL    = `ON DUPLICATE KEY UPDATE qty = VALUES(qty), status = VALUES(status), version = VALUES(version), last_event_id = VALUES(last_event_id)`
)

var mysqlDialect = dialect{words: map[string]string{
	"{serial}": "bigint NOT NULL AUTO_INCREMENT PRIMARY KEY", "{text}": "varchar(191)", "{time}": "datetime(6)",
	"{now}": "UTC_TIMESTAMP(6)", "{upsert}": upsertMySQL,
}}

var dialects = map[string]dialect{
	kindSQLite: {words: map[string]string{
		"{serial}": "INTEGER PRIMARY KEY AUTOINCREMENT", "{text}": "TEXT", "{time}": "TEXT",
		"{now}": "strftime('%Y-%m-%dT%H:%M:%fZ', 'now')", "{upsert}": upsertStandard,
	}},
	kindPostgres: {numbered: true, words: map[string]string{
		"{serial}": "bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY", "{text}": "text", "{time}": "timestamptz",
		"{now}": "clock_timestamp()", "{upsert}": upsertStandard,
	}},
	kindMySQL:   mysqlDialect,
	kindMariaDB: mysqlDialect,
}

// sql puts the dialect's words into a statement.
func (d dialect) sql(template string) string {
	for name, word := range d.words {
		template = strings.ReplaceAll(template, name, word)
	}
	if !d.numbered {
		return template
	}
	var b strings.Builder
	n := 0
	for _, c := range template {
		if c != '?' {
			b.WriteRune(c)
			continue
		}
		n++
		fmt.Fprintf(&b, "$%d", n)
	}
	return b.String()
}

// statements returns those of a script, one by one: not every driver takes more.
func (d dialect) statements(script string) []string {
	var found []string
	for _, statement := range strings.Split(d.sql(script), ";") {
		if statement = strings.TrimSpace(statement); statement != "" {
			found = append(found, statement)
		}
	}
	return found
}
