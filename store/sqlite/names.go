package sqlite

import (
	"strings"

	"github.com/waybillhq/waybill/store"
)

// lexicon puts names and the few recurring expressions into a statement's
// text. A statement names them in braces: {event}, {now}.
type lexicon struct{ *strings.Replacer }

func newLexicon(names store.Names) lexicon {
	names = names.WithDefaults()
	pairs := []string{
		"{iso}", iso,
		"{now}", "strftime(" + iso + ", 'now')",
		"{lease}", quote(names.Lease),
		"{relay}", quote(names.Relay),
		"{meta}", quote(names.Meta),
		"{audit}", quote(names.Audit),
		"{status}", quote(names.Status),
		"{progress}", quote(names.Progress),
		"{reader}", quote(names.Reader),
		"{member}", quote(names.Member),
	}
	// Indexes and triggers share one name space with the tables, so theirs
	// follow from their table's.
	for _, t := range []struct {
		token, name string
		parts       []string
	}{
		{"event", names.Event, []string{"aggregate", "key", "queue"}},
		{"pending", names.Pending, []string{"hot", "due", "key", "held"}},
		{"receipt", names.Receipt, []string{"age"}},
		{"archive", names.Archive, []string{"event"}},
		{"consumed", names.Consumed, []string{"event", "age"}},
		{"held", names.Held, []string{"key", "state"}},
	} {
		pairs = append(pairs, "{"+t.token+"}", quote(t.name))
		for _, part := range t.parts {
			pairs = append(pairs, "{"+t.token+"_"+part+"}", quote(t.name+"_"+part))
		}
	}
	return lexicon{strings.NewReplacer(pairs...)}
}

// quote makes any text a name.
func quote(name string) string {
	return `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
}

const iso = `'%Y-%m-%dT%H:%M:%fZ'`

// eventColumns reads an event whose table is called e; see scanEvent. A key
// that plain SQL left out, where no trigger filled it in, is the aggregate's id.
const eventColumns = `e.event_id, e.tenant_id, e.aggregate_type, e.aggregate_id, COALESCE(e.aggregate_version, 0), e.event_type,
  e.event_version, e.topic, CASE e.event_key WHEN '' THEN e.aggregate_id ELSE e.event_key END, CAST(e.payload AS BLOB),
  e.content_type, COALESCE(e.headers, ''), e.occurred_at`

// rowColumns reads a queue row whose table is called p; see scanRow.
const rowColumns = `p.id, p.lane, p.key_hash, p.topic_hash, p.status, p.parked, p.skip, p.retry_count,
  COALESCE(p.next_retry_at, ''), p.first_error, p.last_error`
