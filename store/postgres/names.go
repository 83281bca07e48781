package postgres

import (
	"errors"
	"fmt"
	"strings"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
)

// maxNameLen leaves room for the longest suffix of a derived name within the 63
// bytes after which PostgreSQL cuts names off without a word.
const maxNameLen = 63 - len("_queue_position")

// Expressions over a row n of events. They are computed here only, so that
// Append, the trigger and a requeue can never disagree. The byte 0 cannot stand
// in a text, so no two pairs of topic and key give the same bytes.
const (
	effectiveKey = `COALESCE(NULLIF(n.event_key, ''), n.aggregate_id)`
	laneOf       = `get_byte(sha256(convert_to(` + effectiveKey + `, 'UTF8')), 0) & 63`
	keyHashOf    = `('x' || encode(substr(sha256(convert_to(n.topic, 'UTF8') || '\x00'::bytea || convert_to(` + effectiveKey + `, 'UTF8')), 1, 8), 'hex'))::bit(64)::bigint`
	topicHashOf  = `('x' || encode(substr(sha256(convert_to(n.topic, 'UTF8')), 1, 8), 'hex'))::bit(64)::bigint`

	// Ids are unique among the facts, so a queue row met on insertion is left
	// over from another event and nothing of it may stay.
	resetOnConflict = `ON CONFLICT (id) DO UPDATE SET
        key_hash = EXCLUDED.key_hash, topic_hash = EXCLUDED.topic_hash, lane = EXCLUDED.lane,
        status = 'PENDING', parked = false, skip = false, retry_count = 0,
        next_retry_at = NULL, first_error = NULL, last_error = NULL, updated_at = clock_timestamp()`
)

// names expands the placeholders of statements, once, at construction.
type names struct {
	store.Names
	replacer *strings.Replacer
}

func newNames(n store.Names) (*names, error) {
	n = n.WithDefaults()
	tables := []struct{ placeholder, name string }{
		{"event", n.Event},
		{"pending", n.Pending},
		{"receipt", n.Receipt},
		{"archive", n.Archive},
		{"status", n.Status},
		{"lease", n.Lease},
		{"relay", n.Relay},
		{"meta", n.Meta},
		{"audit", n.Audit},
		{"consumed", n.Consumed},
		{"key", n.Key},
		{"progress", n.Progress},
		{"held", n.Held},
		{"reader", n.Reader},
		{"member", n.Member},
		{"effect", n.Effect},
		{"horizon", n.Horizon},
		{"head", n.Head},
		{"position", n.Position},
	}
	if err := checkName(n.Schema); err != nil {
		return nil, err
	}
	pairs := []string{
		"{lane}", laneOf, "{key_hash}", keyHashOf, "{topic_hash}", topicHashOf, "{reset}", resetOnConflict,
		"{schema}", quoteIdentifier(n.Schema), "{schema_literal}", quoteLiteral(quoteIdentifier(n.Schema)),
		"{search_path_literal}", quoteLiteral(quoteIdentifier(n.Schema) + ", pg_temp"),
	}
	seen := make(map[string]string, len(tables))
	for _, table := range tables {
		if err := checkName(table.name); err != nil {
			return nil, err
		}
		if other, taken := seen[table.name]; taken {
			return nil, nameError(table.name, fmt.Errorf("two tables, %s and %s, have this name", other, table.placeholder))
		}
		seen[table.name] = table.placeholder
		pairs = append(pairs, "{"+table.placeholder+"}", qualify(n.Schema, table.name),
			"{"+table.placeholder+"_literal}", quoteLiteral(qualify(n.Schema, table.name)))
	}
	for _, index := range []struct{ table, suffix string }{
		{"event", "event_id"},
		{"event", "aggregate"},
		{"event", "key"},
		{"event", "created"},
		{"pending", "hot"},
		{"pending", "due"},
		{"pending", "key"},
		{"pending", "held"},
		{"pending", "dead"},
		{"receipt", "published"},
		{"archive", "event_id"},
		{"consumed", "position"},
		{"consumed", "age"},
		{"held", "key"},
		{"held", "seq"},
		{"held", "retry"},
		{"held", "blocked"},
		{"held", "waiting"},
		{"held", "unsent"},
	} {
		for _, table := range tables {
			if table.placeholder == index.table {
				pairs = append(pairs, "{"+index.table+"_"+index.suffix+"}", quoteIdentifier(table.name+"_"+index.suffix))
			}
		}
	}
	for _, function := range []string{"number", "key", "queue", "head"} {
		name := qualify(n.Schema, n.Event+"_"+function)
		pairs = append(pairs, "{"+function+"_function}", name, "{"+function+"_function_literal}", quoteLiteral(name))
	}
	return &names{Names: n, replacer: strings.NewReplacer(pairs...)}, nil
}

// expand puts the names into a statement.
func (n *names) expand(template string) string {
	return n.replacer.Replace(template)
}

func checkName(name string) error {
	switch {
	case len(name) > maxNameLen:
		return nameError(name, fmt.Errorf("%d bytes, limit %d", len(name), maxNameLen))
	case strings.ContainsRune(name, 0):
		return nameError(name, errors.New("it contains the byte 0"))
	case strings.Contains(name, "$waybill$"):
		return nameError(name, errors.New("it contains the quote of the trigger's body"))
	}
	return nil
}

func nameError(name string, err error) error {
	return &waybill.Error{Op: "postgres: use table name", Key: fmt.Sprintf("%q", name), Err: err, Hint: "choose another name in Config.Names"}
}

func qualify(schema, name string) string {
	if schema == "" {
		return quoteIdentifier(name)
	}
	return quoteIdentifier(schema) + "." + quoteIdentifier(name)
}

func quoteIdentifier(name string) string {
	return `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
}

func quoteLiteral(text string) string {
	if strings.Contains(text, `\`) {
		return ` E'` + strings.ReplaceAll(strings.ReplaceAll(text, `\`, `\\`), `'`, `''`) + `'`
	}
	return `'` + strings.ReplaceAll(text, `'`, `''`) + `'`
}
