package mysql

import "strings"

const grantsText = `-- What the account of a relay needs in MySQL or MariaDB: for sending, for what people
-- decide about events, and for the cleanup. Run it as an administrator, once the tables are there.
GRANT SELECT, DELETE ON {event} TO {account};
GRANT SELECT, INSERT, UPDATE, DELETE ON {pending} TO {account};
GRANT SELECT, INSERT, UPDATE, DELETE ON {receipt} TO {account};
GRANT SELECT, INSERT, UPDATE, DELETE ON {lease} TO {account};
GRANT SELECT, INSERT, UPDATE, DELETE ON {relay} TO {account};
GRANT SELECT, INSERT, UPDATE, DELETE ON {meta} TO {account};
GRANT SELECT, INSERT, UPDATE, DELETE ON {position} TO {account};
GRANT SELECT, INSERT ON {archive} TO {account};
GRANT SELECT, INSERT ON {audit} TO {account};
GRANT SELECT, SHOW VIEW ON {status} TO {account};
{heads}
-- With it the relay sees which transactions are still running, and need not go over
-- the last minute of the queue again and again. It shows all sessions, and their statements.
GRANT PROCESS ON *.* TO {account};
`

// Grants returns the script that gives an account, 'user'@'host', what a relay,
// the verbs about its events and the cleanup need, and nothing more: no right to
// append events, to see consumers' tables, or to change the schema.
func (s *Store) Grants(account string) string {
	heads := ""
	if s.config.Head {
		heads = "GRANT SELECT, INSERT, UPDATE, DELETE ON {head} TO {account};\n"
	}
	text := strings.ReplaceAll(grantsText, "{heads}", heads)
	return strings.ReplaceAll(s.names.expand(text), "{account}", account)
}
