package postgres

import "strings"

// To lock a row for an UPDATE or a DELETE, a right to update one of its columns is
// needed, if only of one that nobody updates.
const grantsText = `-- What the account of a relay needs in PostgreSQL: for sending, for what people decide
-- about events, and for the cleanup. Run it as the owner of the tables, once they are there.
GRANT SELECT, DELETE, UPDATE (id) ON {event} TO {role};
GRANT SELECT, INSERT, UPDATE, DELETE ON {pending}, {receipt}, {lease}, {relay}, {meta}, {position} TO {role};
GRANT SELECT, INSERT ON {archive}, {audit} TO {role};
GRANT SELECT ON {status} TO {role};
{usage}{heads}`

// Grants returns the script that gives a role what a relay, the verbs about its
// events and the cleanup need, and nothing more: no right to append events, to see
// consumers' tables, or to change the schema.
func (s *Store) Grants(role string) string {
	usage, heads := "", ""
	if s.names.Schema != "" {
		usage = "GRANT USAGE ON SCHEMA {schema} TO {role};\n"
	}
	if s.head {
		heads = "GRANT SELECT, INSERT, UPDATE, DELETE ON {head} TO {role};\n"
	}
	text := strings.NewReplacer("{usage}", usage, "{heads}", heads).Replace(grantsText)
	return strings.ReplaceAll(s.names.expand(text), "{role}", quoteIdentifier(role))
}
