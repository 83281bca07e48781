package reconcile

import (
	"fmt"
	"strings"
)

// engineWords are what an engine says otherwise than the others.
type engineWords struct {
	before  string // how the arms come about, by hand or by this
	quote   string
	back    string // of a group in a replacement
	instant string // a text as a time, NULL where it is none
	after   string // what is done with the candidates; %s is the query
}

// engines have files of the arms, or tables that were filled with them.
var engines = map[string]engineWords{
	"duckdb": {
		before: `-- The arms are the files write*.csv, log*.csv and read*.csv in this folder.
SET TimeZone = 'UTC';
%s`,
		quote: `"`, back: `\`, instant: "TRY_CAST(%s AS TIMESTAMPTZ)",
		after: "COPY (\n%s\n) TO 'candidates.csv' (FORMAT csv, HEADER);\n",
	},
	"spark": {
		before: `-- The arms are the views write_arm, log_arm and read_arm, all columns texts but version, sent and deleted:
-- spark.read.option("header", True).csv("write*.csv").createOrReplaceTempView("write_arm")
-- Save the result: spark.sql(...).coalesce(1).write.option("header", True).csv("candidates")
`,
		quote: "`", back: "$", instant: "TRY_CAST(%s AS TIMESTAMP)",
		after: "%s\n",
	},
	"trino": {
		before: `-- The arms are the tables write_arm, log_arm and read_arm, all columns varchar but version, sent and deleted.
-- Save the result: trino --output-format CSV_HEADER -f compare.trino.sql > candidates.csv
`,
		quote: `"`, back: "$", instant: "TRY_CAST(%s AS TIMESTAMP(6) WITH TIME ZONE)",
		after: "%s\n",
	},
}

// compare writes the statement that makes candidates of the arms: all keys but
// those of which the arms say the same. What is equal in another form, and not
// seen to be, is one candidate more.
func (w *exporter) compare(words *engineWords) string {
	c := w.check
	var keyNames, joined []string
	for i := range c.Key {
		keyNames = append(keyNames, fmt.Sprintf("k%d", i+1))
	}
	keyList := strings.Join(keyNames, ", ")
	var arms []string
	views := ""
	for _, arm := range w.arms(Range{}) {
		arms = append(arms, arm.Arm)
		var columns []string
		for _, column := range arm.Columns {
			if column == "version" || column == "sent" || column == "deleted" {
				column = "CAST(" + column + " AS BIGINT) AS " + column
			}
			columns = append(columns, column)
		}
		views += fmt.Sprintf("CREATE TEMP VIEW %[1]s_arm AS SELECT %[2]s\nFROM read_csv('%[1]s*.csv', header = true, all_varchar = true, delim = ',', quote = '\"', escape = '\"', nullstr = '\\N');\n", arm.Arm, strings.Join(columns, ", "))
	}
	var parts []string
	for _, arm := range arms {
		if arm != "log" {
			parts = append(parts, fmt.Sprintf("%[1]s_all AS (\n  SELECT %[2]s, MAX(CAST(version AS BIGINT)) AS version, COUNT(*) AS rows_found, MAX(CAST(deleted AS BIGINT)) AS deleted%[3]s\n  FROM %[1]s_arm GROUP BY %[2]s)", arm, keyList, w.maxima("")))
			continue
		}
		parts = append(parts, fmt.Sprintf(`log_top AS (
  SELECT %[1]s, MAX(CAST(version AS BIGINT)) AS version, MIN(CASE WHEN CAST(sent AS BIGINT) = 1 THEN CAST(version AS BIGINT) END) AS first_sent,
         COUNT(DISTINCT CASE WHEN CAST(sent AS BIGINT) = 1 THEN CAST(version AS BIGINT) END) AS versions_sent
  FROM log_arm GROUP BY %[1]s)`, keyList),
			fmt.Sprintf(`log_all AS (
  SELECT %[1]s, MAX(t.version) AS version, MAX(t.versions_sent) AS versions_sent, MIN(CAST(e.sent AS BIGINT)) AS sent, COUNT(*) AS rows_found,
         MAX(CAST(e.deleted AS BIGINT)) AS deleted%[2]s
  FROM log_top t JOIN log_arm e ON CAST(e.version AS BIGINT) = t.version AND %[3]s
  GROUP BY %[1]s)`, prefixed("t.", keyNames), w.maxima("e."), equated("t", "e", keyNames)))
	}
	for _, arm := range arms {
		joined = append(joined, fmt.Sprintf("  SELECT %s FROM %s_all", keyList, arm))
	}
	parts = append(parts, "every_key AS (\n"+strings.Join(joined, "\n  UNION\n")+")")
	from := "FROM every_key k"
	for _, arm := range arms {
		from += fmt.Sprintf("\nLEFT JOIN %[1]s_all %[2]s ON %[3]s", arm, arm[:1], equated("k", arm[:1], keyNames))
	}
	heading := make([]string, len(keyNames))
	for i, name := range keyNames {
		heading[i] = "k." + name + " AS " + words.quote + strings.ReplaceAll(c.Key[i].Name, words.quote, words.quote+words.quote) + words.quote
	}
	query := "WITH " + strings.Join(parts, ",\n") + "\nSELECT " + strings.Join(heading, ", ") + "\n" + from + "\nWHERE NOT COALESCE(\n     " + w.same(words, arms) + ",\n  FALSE)\nORDER BY " + prefixed("k.", keyNames)
	before := words.before
	if strings.Contains(before, "%s") {
		before = fmt.Sprintf(before, views)
	}
	return before + fmt.Sprintf(words.after, query)
}

// maxima are the compared columns of a key that has one row.
func (w *exporter) maxima(prefix string) string {
	text := ""
	for i := range w.check.Compare {
		text += fmt.Sprintf(", MAX(%[1]sv%[2]d) AS v%[2]d", prefix, i+1)
	}
	return text
}

// same writes that all arms say the same of a key.
func (w *exporter) same(words *engineWords, arms []string) string {
	c := w.check
	var gone, alike []string
	for _, arm := range arms {
		a := arm[:1]
		if arm == "log" {
			gone = append(gone, "(l.version IS NULL OR l.deleted = 1 AND l.sent = 1 AND l.rows_found = 1)")
			alike = append(alike, "l.sent = 1", "l.rows_found = 1", "l.deleted = 0")
			if c.Density == "every_version" {
				alike = append(alike, fmt.Sprintf("l.versions_sent = l.version - %d", *c.FirstVersion-1))
			}
			continue
		}
		gone = append(gone, "("+a+".version IS NULL OR "+a+".deleted = 1)")
		alike = append(alike, a+".rows_found = 1", a+".deleted = 0")
	}
	for i := 1; i < len(arms); i++ {
		alike = append(alike, arms[0][:1]+".version = "+arms[i][:1]+".version")
	}
	for i := range c.Compare {
		column := &c.Compare[i]
		var having []string
		for _, arm := range arms {
			if name := map[string]string{"write": column.Write, "log": column.Log, "read": column.Read}[arm]; column.in(name) != "" && !(arm == "log" && c.Events == "delta") {
				having = append(having, arm[:1])
			}
		}
		for n := 1; n < len(having); n++ {
			alike = append(alike, w.equalValues(words, i, having[0], having[n]))
		}
	}
	return "(" + strings.Join(gone, " AND ") + ")\n  OR (" + strings.Join(alike, "\n      AND ") + ")"
}

// equalValues writes that a compared column is equal in two arms.
func (w *exporter) equalValues(words *engineWords, i int, a, b string) string {
	name := func(arm string) string { return fmt.Sprintf("%s.v%d", arm, i+1) }
	plain := name(a) + " = " + name(b)
	normal := func(arm string) string {
		switch w.kinds[i] {
		case KindNumber:
			// Without the zeros that say nothing; 1e3 remains another text than 1000.
			text := fmt.Sprintf(`REGEXP_REPLACE(%s, '^(=[+-]?[0-9]+)[.]0*$', '%s1')`, name(arm), words.back)
			return fmt.Sprintf(`REGEXP_REPLACE(%s, '^(=[+-]?[0-9]+[.][0-9]*[1-9])0+$', '%s1')`, text, words.back)
		case KindTime:
			return fmt.Sprintf(words.instant, "NULLIF(SUBSTR("+name(arm)+", 2), '')")
		case KindUUID:
			return "LOWER(REPLACE(" + name(arm) + ", '-', ''))"
		case KindBool:
			return "CASE WHEN LOWER(" + name(arm) + ") IN ('=1', '=t', '=true') THEN '=1' WHEN LOWER(" + name(arm) + ") IN ('=0', '=f', '=false') THEN '=0' END"
		}
		return ""
	}
	if normal(a) == "" {
		return plain
	}
	return "(" + plain + " OR " + normal(a) + " = " + normal(b) + ")"
}

func prefixed(prefix string, names []string) string {
	return prefix + strings.Join(names, ", "+prefix)
}

func equated(a, b string, names []string) string {
	terms := make([]string, len(names))
	for i, name := range names {
		terms[i] = a + "." + name + " = " + b + "." + name
	}
	return strings.Join(terms, " AND ")
}
