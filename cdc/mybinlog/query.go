package mybinlog

import (
	"encoding/hex"
	"strconv"
	"strings"
)

// verb is what a statement in the log means for the stream.
type verb int

const (
	other verb = iota
	begin
	commit
	rollback
	savepoint
	rollbackTo
	xaStart
	xaEnd
	xaCommit
	xaRollback
	truncate
	insert // a row that is logged as a statement
)

// query is a statement of the log, as far as it matters here.
type query struct {
	verb verb
	// name is the savepoint, or the branch's id; see xid.
	name string
	// table is what truncate and insert name; the schema may be empty.
	schema, table string
	// opens tells that rows follow though the statement defines a table.
	opens bool
}

// readQuery reads a statement. It is no parser: what it does not recognise is
// of no concern, and what it takes for more than it is costs a look at the queue.
func readQuery(text string) query {
	t := tokens{rest: text}
	first := t.keyword()
	switch first {
	case "BEGIN":
		return query{verb: begin}
	case "START":
		if t.keyword() == "TRANSACTION" {
			return query{verb: begin}
		}
	case "COMMIT":
		return query{verb: commit}
	case "ROLLBACK":
		next := t.keyword()
		if next == "WORK" {
			next = t.keyword()
		}
		if next != "TO" {
			return query{verb: rollback}
		}
		name := t.name()
		if strings.EqualFold(name, "SAVEPOINT") {
			if longer := t.name(); longer != "" {
				name = longer
			}
		}
		return query{verb: rollbackTo, name: strings.ToLower(name)}
	case "SAVEPOINT":
		return query{verb: savepoint, name: strings.ToLower(t.name())}
	case "XA":
		return readXA(t)
	case "TRUNCATE":
		schema, table := t.tableAfter("TABLE")
		return query{verb: truncate, schema: schema, table: table}
	case "INSERT", "REPLACE", "LOAD":
		return query{verb: insert}.into(t)
	case "CREATE":
		return query{opens: strings.HasSuffix(strings.ToUpper(strings.TrimRight(text, " ;\n\t")), "START TRANSACTION")}
	case "ALTER":
		return readAlter(t)
	}
	return query{}
}

func readXA(t tokens) query {
	verbs := map[string]verb{
		"START": xaStart, "BEGIN": xaStart, "END": xaEnd, "COMMIT": xaCommit, "ROLLBACK": xaRollback,
	}
	what, known := verbs[t.keyword()]
	if !known {
		return query{}
	}
	return query{verb: what, name: t.xid()}
}

// readAlter finds ALTER TABLE ... TRUNCATE PARTITION.
func readAlter(t tokens) query {
	if t.keyword() != "TABLE" {
		return query{}
	}
	schema, table := t.tableAfter()
	if t.keyword() != "TRUNCATE" {
		return query{}
	}
	return query{verb: truncate, schema: schema, table: table}
}

// into finds the table of an INSERT, a REPLACE or a LOAD DATA.
func (q query) into(t tokens) query {
	start := t
	for range 16 {
		word := t.keyword()
		if word == "INTO" {
			q.schema, q.table = t.tableAfter("TABLE")
			return q
		}
		if word == "" && !t.skip() {
			break
		}
	}
	q.schema, q.table = start.tableAfter("LOW_PRIORITY", "DELAYED", "HIGH_PRIORITY", "IGNORE")
	return q
}

// tokens takes a statement apart from its beginning.
type tokens struct{ rest string }

// blank drops spaces and comments, and opens those that the server executes.
func (t *tokens) blank() {
	for {
		t.rest = strings.TrimLeft(t.rest, " \t\r\n\f\v")
		switch {
		case strings.HasPrefix(t.rest, "/*!"), strings.HasPrefix(t.rest, "/*M!"):
			t.rest = strings.TrimLeft(t.rest[strings.IndexByte(t.rest, '!')+1:], "0123456789")
		case strings.HasPrefix(t.rest, "/*"):
			_, after, _ := strings.Cut(t.rest[2:], "*/")
			t.rest = after
		case strings.HasPrefix(t.rest, "*/"):
			t.rest = t.rest[2:]
		case strings.HasPrefix(t.rest, "#"), strings.HasPrefix(t.rest, "-- "):
			_, after, _ := strings.Cut(t.rest, "\n")
			t.rest = after
		default:
			return
		}
	}
}

// keyword takes a bare word, in capitals; empty where there is none.
func (t *tokens) keyword() string {
	t.blank()
	if strings.HasPrefix(t.rest, "`") {
		return ""
	}
	return strings.ToUpper(t.word())
}

func (t *tokens) word() string {
	end := strings.IndexFunc(t.rest, func(r rune) bool {
		return r != '_' && r != '$' && r < 0x80 && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	})
	if end < 0 {
		end = len(t.rest)
	}
	word := t.rest[:end]
	t.rest = t.rest[end:]
	return word
}

// name takes an identifier, quoted or not; empty where there is none.
func (t *tokens) name() string {
	t.blank()
	if t.rest == "" || t.rest[0] != '`' && t.rest[0] != '"' {
		return t.word()
	}
	quote := t.rest[:1]
	text := t.rest[1:]
	var b strings.Builder
	for {
		part, after, found := strings.Cut(text, quote)
		b.WriteString(part)
		t.rest = after
		if !found || !strings.HasPrefix(after, quote) {
			return b.String()
		}
		b.WriteString(quote)
		text = after[1:]
	}
}

// tableAfter takes a table's name, with its schema or without, after any of the
// words.
func (t *tokens) tableAfter(words ...string) (schema, table string) {
	for {
		before := *t
		word := t.keyword()
		if word == "" || !isOneOf(word, words) {
			*t = before
			break
		}
	}
	table = t.name()
	t.blank()
	if strings.HasPrefix(t.rest, ".") {
		t.rest = t.rest[1:]
		schema, table = table, t.name()
	}
	return schema, table
}

func isOneOf(word string, words []string) bool {
	for _, one := range words {
		if word == one {
			return true
		}
	}
	return false
}

// skip passes over a string, or one character that is no word.
func (t *tokens) skip() bool {
	if t.rest == "" {
		return false
	}
	if quote := t.rest[:1]; quote == "'" || quote == `"` {
		_, after, _ := strings.Cut(t.rest[1:], quote)
		t.rest = after
		return true
	}
	t.rest = t.rest[1:]
	return true
}

// xid takes a branch's id as the servers write it into the log: two strings of
// hexadecimal digits and a number.
func (t *tokens) xid() string {
	t.blank()
	fields := strings.SplitN(t.rest, ",", 3)
	if len(fields) < 3 {
		return ""
	}
	number, _, _ := strings.Cut(strings.TrimSpace(fields[2]), " ")
	format, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return ""
	}
	global, ok := hexText(fields[0])
	branch, also := hexText(fields[1])
	if !ok || !also {
		return ""
	}
	return xid(global, branch, format)
}

func hexText(text string) ([]byte, bool) {
	text = strings.TrimSpace(text)
	if len(text) < 3 || text[0] != 'X' && text[0] != 'x' || text[1] != '\'' || text[len(text)-1] != '\'' {
		return nil, false
	}
	data, err := hex.DecodeString(text[2 : len(text)-1])
	return data, err == nil
}

// xid is the name of a branch of a distributed transaction.
func xid(global, branch []byte, format int64) string {
	return hex.EncodeToString(global) + "," + hex.EncodeToString(branch) + "," + strconv.FormatInt(format, 10)
}
