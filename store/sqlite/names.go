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
		"{effect}", quote(names.Effect),
		"{horizon}", quote(names.Horizon),
		"{head}", quote(names.Head),
		"{position}", quote(names.Position),
	}
	// Indexes and triggers share one name space with the tables, so theirs
	// follow from their table's.
	for _, t := range []struct {
		token, name string
		parts       []string
	}{
		{"event", names.Event, []string{"aggregate", "key", "queue", "head"}},
		{"pending", names.Pending, []string{"hot", "due", "key", "held"}},
		{"receipt", names.Receipt, []string{"published"}},
		{"archive", names.Archive, []string{"event_id"}},
		{"consumed", names.Consumed, []string{"event", "age"}},
		{"held", names.Held, []string{"key", "state", "waiting"}},
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
