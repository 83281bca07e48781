package mybinlog

import "strings"

const grantsText = `-- What the account of a relay needs to read the log of MySQL or MariaDB; run as an
-- administrator.
GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO {account}; -- MariaDB calls the second one BINLOG MONITOR, and knows it by both names
GRANT SELECT ON {event} TO {account};
GRANT SELECT, INSERT, UPDATE ON {meta} TO {account};

-- MariaDB lets an account see who else reads the log with one right more, so that
-- a server id that is used twice is noticed before it does harm:
-- GRANT REPLICATION MASTER ADMIN ON *.* TO {account};
`

// Grants returns the script that lets an account, 'user'@'host', read the log.
func (s *Source) Grants(account string) string {
	return s.sql(strings.ReplaceAll(grantsText, "{account}", account))
}
