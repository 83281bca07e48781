package mysql

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
)

// maxNameLen leaves room for the longest suffix of a derived name within the 64
// characters that a name may have.
const maxNameLen = 64 - len("_queue")

// Expressions over a row n of events. They are computed here only, so that
// Append, the trigger and a requeue can never disagree. The byte 0 cannot stand
// in a topic, so no two pairs of topic and key give the same bytes. The values
// are those of the store for PostgreSQL.
const (
	effectiveKey = `COALESCE(NULLIF(n.event_key, ''), n.aggregate_id)`
	laneOf       = `CONV(LEFT(SHA2(` + effectiveKey + `, 256), 2), 16, 10) & 63`
	keyHashOf    = `CONV(LEFT(SHA2(CONCAT(n.topic, 0x00, ` + effectiveKey + `), 256), 16), 16, -10)`
	topicHashOf  = `CONV(LEFT(SHA2(n.topic, 256), 16), 16, -10)`

	// Ids are unique among the facts, so a queue row met on insertion is left
	// over from another event and nothing of it may stay.
	resetOnConflict = `ON DUPLICATE KEY UPDATE
    lane = VALUES(lane), key_hash = VALUES(key_hash), topic_hash = VALUES(topic_hash),
    status = 'PENDING', parked = 0, skip = 0, retry_count = 0,
    next_retry_at = NULL, first_error = NULL, last_error = NULL, updated_at = UTC_TIMESTAMP(6)`
)

// dialect is what MySQL and MariaDB call differently.
type dialect struct {
	name      string // for errors
	collation string // compares bytes, trailing spaces too
	update    string
	share     string
	// of tells that the table to be locked must be named where it is joined with
	// a list. MariaDB does not know that form.
	of bool
}

func (d dialect) lock(clause, alias string) string {
	if d.of {
		clause += " OF " + alias
	}
	return clause
}

var (
	dialectMySQL   = dialect{name: "MySQL", collation: "utf8mb4_0900_bin", update: "FOR UPDATE", share: "FOR SHARE", of: true}
	dialectMariaDB = dialect{name: "MariaDB", collation: "utf8mb4_nopad_bin", update: "FOR UPDATE", share: "LOCK IN SHARE MODE"}
)

// names expands the placeholders of statements, once, at construction.
type names struct {
	store.Names
	keyTrigger, queueTrigger, headTrigger string
	replacer                              *strings.Replacer
}

func newNames(n store.Names, d dialect) (*names, error) {
	n = n.WithDefaults()
	if err := checkName(n.Schema); err != nil {
		return nil, err
	}
	made := &names{Names: n, keyTrigger: n.Event + "_key", queueTrigger: n.Event + "_queue", headTrigger: n.Event + "_head"}
	newRow := strings.NewReplacer("n.", "NEW.")
	pairs := []string{
		"{lane}", laneOf, "{key_hash}", keyHashOf, "{topic_hash}", topicHashOf, "{reset}", resetOnConflict,
		"{new_lane}", newRow.Replace(laneOf), "{new_key_hash}", newRow.Replace(keyHashOf), "{new_topic_hash}", newRow.Replace(topicHashOf),
		"{collation}", d.collation, "{schema}", quote(n.Schema),
		"{options}", "ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE " + d.collation,
		"{head_trigger}", qualify(n.Schema, made.headTrigger),
		"{key_trigger}", qualify(n.Schema, made.keyTrigger), "{queue_trigger}", qualify(n.Schema, made.queueTrigger),
	}
	for _, alias := range []string{"e", "l", "p", "r"} {
		pairs = append(pairs, "{for update "+alias+"}", d.lock(d.update, alias), "{for share "+alias+"}", d.lock(d.share, alias))
	}
	seen := make(map[string]string)
	for _, table := range []struct{ placeholder, name string }{
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
	} {
		if err := checkName(table.name); err != nil {
			return nil, err
		}
		if other, taken := seen[table.name]; taken {
			return nil, nameError(table.name, fmt.Errorf("two tables, %s and %s, have this name", other, table.placeholder))
		}
		seen[table.name] = table.placeholder
		pairs = append(pairs, "{"+table.placeholder+"}", qualify(n.Schema, table.name))
	}
	made.replacer = strings.NewReplacer(pairs...)
	return made, nil
}

// expand puts the names into a statement.
func (n *names) expand(template string) string { return n.replacer.Replace(template) }

func checkName(name string) error {
	switch {
	case utf8.RuneCountInString(name) > maxNameLen:
		return nameError(name, fmt.Errorf("%d characters, limit %d", utf8.RuneCountInString(name), maxNameLen))
	case strings.ContainsRune(name, 0):
		return nameError(name, errors.New("it contains the byte 0"))
	case strings.HasSuffix(name, " "):
		return nameError(name, errors.New("it ends with a space, which the database refuses"))
	case strings.ContainsFunc(name, func(r rune) bool { return r > 0xffff }) || !utf8.ValidString(name):
		return nameError(name, errors.New("it has a character that the database refuses in names"))
	}
	return nil
}

func nameError(name string, err error) error {
	return &waybill.Error{Op: "mysql: use table name", Key: fmt.Sprintf("%q", name), Err: err, Hint: "choose another name in Config.Names"}
}

func qualify(schema, name string) string {
	if schema == "" {
		return quote(name)
	}
	return quote(schema) + "." + quote(name)
}

// quote is right whatever sql_mode is.
func quote(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }
