package pgwal

import "strings"

const grantsText = `-- What the account of a relay needs on PostgreSQL to read the log; run as the
-- owner of the outbox, who may create in the database, and for the role itself as
-- one who may give REPLICATION.
ALTER ROLE {role} REPLICATION; -- managed servers have a role for it: GRANT rds_replication TO {role}
GRANT CONNECT ON DATABASE {database} TO {role};
{usage}CREATE PUBLICATION {publication} FOR TABLE {event} ("id") WITH (publish = 'insert, truncate', publish_via_partition_root = true);

-- In pg_hba.conf, a line that admits {role} to {database} is enough; logical
-- replication does not need one for "replication".
`

// Grants returns the script that lets a role read the log and do nothing else that
// it could not do before: for servers where the relay's account may not create a
// publication itself.
func (s *Source) Grants(role string) string {
	usage := ""
	if s.config.Schema != "" {
		usage = "GRANT USAGE ON SCHEMA " + quoteIdentifier(s.config.Schema) + " TO {role};\n"
	}
	return s.sql(strings.NewReplacer("{role}", quoteIdentifier(role), "{database}", quoteIdentifier(s.replication.Database)).
		Replace(strings.Replace(grantsText, "{usage}", usage, 1)))
}
