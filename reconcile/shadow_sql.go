package reconcile

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

func (s *shadow) liveName() string { return s.bases.read.Dialect.table(s.live) }
func (s *shadow) copyName() string { return s.bases.read.Dialect.table(s.table) }

// oldName is what MySQL calls the read model between the swap and its end.
func (s *shadow) oldName() string {
	old := *s.live
	old.Table += "_waybill_old"
	return s.bases.read.Dialect.table(&old)
}

// dropCopy removes what a rebuild that was killed has left.
func (s *shadow) dropCopy() []string {
	all := []string{"DROP TABLE IF EXISTS " + s.copyName()}
	if s.bases.read.Dialect.family() == MySQL {
		all = append(all, "DROP TABLE IF EXISTS "+s.oldName())
	}
	return all
}

func (s *shadow) createCopy() []string {
	switch s.bases.read.Dialect.family() {
	case Postgres:
		return []string{fmt.Sprintf("CREATE TABLE %s (LIKE %s INCLUDING ALL)", s.copyName(), s.liveName())}
	case MySQL:
		return []string{fmt.Sprintf("CREATE TABLE %s LIKE %s", s.copyName(), s.liveName())}
	}
	index := *s.table
	index.Table += "_key"
	columns := s.bases.read.Dialect.keys(s.table, s.bases.kinds).selected()
	return []string{
		fmt.Sprintf("CREATE TABLE %s AS SELECT * FROM %s WHERE 0", s.copyName(), s.liveName()),
		fmt.Sprintf("CREATE UNIQUE INDEX %s ON %s (%s)", s.bases.read.Dialect.table(&index), s.bases.read.Dialect.quote(s.table.Table), columns),
	}
}

// comparisons list keys whose versions differ, each with the version that the
// read model has, or NULL where it has no row.
func (s *shadow) comparisons() []string {
	d := s.bases.read.Dialect
	live, copied := s.liveName(), s.copyName()
	var keysOfLive, keysOfCopy, same []string
	for _, column := range d.keys(s.live, s.bases.kinds).columns {
		keysOfLive, keysOfCopy = append(keysOfLive, live+"."+column), append(keysOfCopy, copied+"."+column)
		same = append(same, live+"."+column+" = "+copied+"."+column)
	}
	version := d.quote(s.live.Version)
	return []string{
		fmt.Sprintf("SELECT %[1]s, COALESCE(%[2]s.%[3]s, 0) FROM %[2]s LEFT JOIN %[4]s ON %[5]s WHERE %[6]s IS NULL OR COALESCE(%[2]s.%[3]s, 0) <> COALESCE(%[4]s.%[3]s, 0)",
			strings.Join(keysOfLive, ", "), live, version, copied, strings.Join(same, " AND "), keysOfCopy[0]),
		fmt.Sprintf("SELECT %s, NULL FROM %s LEFT JOIN %s ON %s WHERE %s IS NULL",
			strings.Join(keysOfCopy, ", "), copied, live, strings.Join(same, " AND "), keysOfLive[0]),
	}
}

// lock lets writers of the read model wait, or gives up after a moment: who
// waits for a lock makes all wait that come later.
func (s *shadow) lock() []string {
	switch s.bases.read.Dialect {
	case MariaDB: // see exchangeFromOutside
		return []string{
			"SET SESSION lock_wait_timeout = 1, autocommit = 0", "DROP TABLE IF EXISTS " + s.oldName(), "CREATE TABLE " + s.oldName() + " (id INTEGER)",
			fmt.Sprintf("LOCK TABLES %s WRITE, %s WRITE, %s WRITE", s.liveName(), s.copyName(), s.oldName()),
		}
	case Postgres:
		return []string{"BEGIN", "SET LOCAL lock_timeout = '500ms'", "LOCK TABLE " + s.liveName() + " IN SHARE ROW EXCLUSIVE MODE"}
	case MySQL:
		return []string{"SET SESSION lock_wait_timeout = 1, autocommit = 0", fmt.Sprintf("LOCK TABLES %s WRITE, %s WRITE", s.liveName(), s.copyName())}
	}
	return []string{"BEGIN IMMEDIATE"}
}

func (s *shadow) unlock() []string {
	if s.bases.read.Dialect.family() == MySQL {
		return []string{"ROLLBACK", "UNLOCK TABLES", "SET SESSION lock_wait_timeout = DEFAULT, autocommit = 1"}
	}
	return []string{"ROLLBACK"}
}

func (s *shadow) rename() string {
	return fmt.Sprintf("RENAME TABLE %s TO %s, %s TO %s", s.liveName(), s.oldName(), s.copyName(), s.liveName())
}

// exchange puts the copy in the read model's place. The last statement makes it
// so; on MySQL what was brought over is committed before.
func (s *shadow) exchange(ctx context.Context) ([]string, error) {
	live, copied := s.liveName(), s.copyName()
	switch s.bases.read.Dialect.family() {
	case MySQL:
		return []string{"COMMIT", s.rename()}, nil
	case SQLite:
		return []string{"DELETE FROM " + live, fmt.Sprintf("INSERT INTO %s SELECT * FROM %s", live, copied), "DROP TABLE " + copied, "COMMIT"}, nil
	}
	rights, err := s.texts(ctx, rightsPostgres, copied, s.live)
	if err != nil {
		return nil, err
	}
	indexes, err := s.texts(ctx, indexesPostgres, "", s.live, s.table)
	if err != nil {
		return nil, err
	}
	all := append(rights, "LOCK TABLE "+live+" IN ACCESS EXCLUSIVE MODE", "DROP TABLE "+live)
	all = append(all, fmt.Sprintf("ALTER TABLE %s RENAME TO %s", copied, Postgres.quote(s.live.Table)))
	return append(append(all, indexes...), "COMMIT"), nil
}

func (s *shadow) cleanUp() []string {
	if s.bases.read.Dialect.family() == MySQL {
		return []string{"UNLOCK TABLES", "SET SESSION lock_wait_timeout = DEFAULT, autocommit = 1", "DROP TABLE " + s.oldName()}
	}
	return nil
}

// rightsPostgres makes the statements that give a table the owner and the
// rights of another.
const rightsPostgres = `
SELECT format('ALTER TABLE %%s OWNER TO %%I', %[1]s::text, pg_get_userbyid(relowner))
FROM pg_class WHERE oid = to_regclass(%[2]s)
UNION ALL
SELECT format('GRANT %%s ON %%s TO %%s%%s', a.privilege_type, %[1]s::text,
              CASE WHEN a.grantee = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END,
              CASE WHEN a.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END)
FROM pg_class AS c, aclexplode(c.relacl) AS a
WHERE c.oid = to_regclass(%[2]s) AND a.grantee <> c.relowner`

// indexesPostgres makes the statements that give a copy's indexes, and so its
// constraints, the names that those of the table had: indexes are copied in the
// order in which they were made.
const indexesPostgres = `
SELECT format('ALTER INDEX %%I.%%I RENAME TO %%I', n.nspname, b.relname, a.relname)
FROM (SELECT c.relname, row_number() OVER (ORDER BY c.oid) AS nth
      FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid WHERE i.indrelid = to_regclass(%[1]s)) AS a
JOIN (SELECT c.relname, c.relnamespace, row_number() OVER (ORDER BY c.oid) AS nth
      FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid WHERE i.indrelid = to_regclass(%[2]s)) AS b ON b.nth = a.nth
JOIN pg_namespace AS n ON n.oid = b.relnamespace`

// texts runs a query that returns texts. The names of tables are its last
// parameters, after a first one if there is any.
func (s *shadow) texts(ctx context.Context, query, first string, tables ...*Table) (all []string, err error) {
	d := s.bases.read.Dialect
	text := &statement{dialect: d}
	var places []any
	if first != "" {
		places = append(places, text.bind(first))
	}
	for _, table := range tables {
		if d == Postgres {
			places = append(places, text.bind(d.table(table)))
			continue
		}
		var schema any
		if table.Schema != "" {
			schema = table.Schema
		}
		if d != SQLite {
			places = append(places, text.bind(schema))
		}
		places = append(places, text.bind(table.Table))
	}
	text.add(query, places...)
	err = scan(ctx, s.on, text, func(_ []column, got []any) error {
		all = append(all, textAt(got, 0))
		return nil
	})
	return all, err
}

const hindrancesPostgres = `
SELECT CASE c.relkind WHEN 'r' THEN 'its children or parents' ELSE 'that it is no ordinary table' END
FROM pg_class AS c
WHERE c.oid = to_regclass(%[1]s)
  AND (c.relkind <> 'r' OR EXISTS (SELECT 1 FROM pg_inherits AS i WHERE c.oid IN (i.inhrelid, i.inhparent)))
UNION SELECT 'the view ' || v.relname
FROM pg_depend AS d JOIN pg_rewrite AS r ON r.oid = d.objid JOIN pg_class AS v ON v.oid = r.ev_class
WHERE d.classid = 'pg_rewrite'::regclass AND d.refclassid = 'pg_class'::regclass AND d.refobjid = to_regclass(%[1]s) AND v.oid <> d.refobjid
UNION SELECT 'the foreign key ' || conname FROM pg_constraint WHERE contype = 'f' AND to_regclass(%[1]s) IN (conrelid, confrelid)
UNION SELECT 'the trigger ' || tgname FROM pg_trigger WHERE tgrelid = to_regclass(%[1]s) AND NOT tgisinternal
UNION SELECT 'the policy ' || polname FROM pg_policy WHERE polrelid = to_regclass(%[1]s)
UNION SELECT 'the publication ' || p.pubname FROM pg_publication_rel AS r JOIN pg_publication AS p ON p.oid = r.prpubid WHERE r.prrelid = to_regclass(%[1]s)
UNION SELECT 'the computed or numbered column ' || a.attname
FROM pg_attribute AS a LEFT JOIN pg_attrdef AS f ON f.adrelid = a.attrelid AND f.adnum = a.attnum
WHERE a.attrelid = to_regclass(%[1]s) AND NOT a.attisdropped
  AND (a.attidentity <> '' OR a.attgenerated <> '' OR pg_get_expr(f.adbin, f.adrelid) LIKE 'nextval(%%')
UNION SELECT 'the rights to the column ' || attname FROM pg_attribute WHERE attrelid = to_regclass(%[1]s) AND attacl IS NOT NULL`

const hindrancesMySQL = `
SELECT CONCAT('the trigger ', trigger_name) FROM information_schema.triggers
WHERE event_object_schema = COALESCE(%s, DATABASE()) AND event_object_table = %s
UNION SELECT CONCAT('the foreign key ', constraint_name) FROM information_schema.key_column_usage
WHERE table_schema = COALESCE(%s, DATABASE()) AND table_name = %s AND referenced_table_name IS NOT NULL
UNION SELECT CONCAT('the foreign key ', constraint_name) FROM information_schema.key_column_usage
WHERE referenced_table_schema = COALESCE(%s, DATABASE()) AND referenced_table_name = %s
UNION SELECT CONCAT('the computed column ', column_name) FROM information_schema.columns
WHERE table_schema = COALESCE(%s, DATABASE()) AND table_name = %s AND generation_expression <> ''`

const hindrancesSQLite = `
SELECT 'the trigger ' || name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = %s COLLATE NOCASE
UNION SELECT 'the computed column ' || name FROM pragma_table_xinfo(%s) WHERE hidden IN (2, 3)
UNION SELECT 'the foreign key of ' || m.name FROM sqlite_master AS m, pragma_foreign_key_list(m.name) AS f
WHERE m.type = 'table' AND f."table" = %s COLLATE NOCASE`

// swappable says what a copy would lose, or break.
func (s *shadow) swappable(ctx context.Context) error {
	if len(s.live.Where) > 0 {
		return errors.New("the table has rows of other checks as well: rebuild in place")
	}
	var found []string
	var err error
	switch s.bases.read.Dialect.family() {
	case Postgres:
		found, err = s.texts(ctx, hindrancesPostgres, "", s.live)
	case MySQL:
		found, err = s.texts(ctx, hindrancesMySQL, "", s.live, s.live, s.live, s.live)
	default:
		found, err = s.texts(ctx, hindrancesSQLite, "", s.live, s.live, s.live)
	}
	if err != nil {
		return err
	}
	if len(found) > 0 {
		return fmt.Errorf("a copy could not take the place of the table, because of %s: rebuild in place", strings.Join(found, ", "))
	}
	var missing []string
	for _, column := range s.bases.read.Dialect.keys(s.live, s.bases.kinds).columns {
		missing = append(missing, column+" IS NULL")
	}
	keyless, err := s.texts(ctx, "SELECT 'some' FROM "+strings.ReplaceAll(s.liveName(), "%", "%%")+" WHERE "+strings.ReplaceAll(strings.Join(missing, " OR "), "%", "%%")+" LIMIT 1", "")
	if err == nil && len(keyless) > 0 {
		err = errors.New("the table has rows without a key, which a copy would not have: rebuild in place")
	}
	return err
}
