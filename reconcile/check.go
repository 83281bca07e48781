package reconcile

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/waybillhq/waybill"
)

// Check says what to compare. At least two of Write, Log and Read are given;
// with two, the report says which classes it cannot see.
type Check struct {
	Name string `yaml:"name"`
	// Key are the parts of the key, most significant first. A name is also the
	// column's in every arm that does not name its own.
	Key     []KeyPart `yaml:"key"`
	Write   *Table    `yaml:"write"`
	Log     *Log      `yaml:"log"`
	Read    *Table    `yaml:"read"`
	Compare []Column  `yaml:"compare"` // beside the version
	// Consumer, where the read model is fed by an inbox of this module, gives
	// proof of what is still on its way.
	Consumer *Consumer `yaml:"consumer"`

	Events  string `yaml:"events"`  // "state": an event holds all compared columns (default); "delta": it holds a change
	Density string `yaml:"density"` // "latest": only the latest version counts (default); "every_version": gaps are missing events
	// FirstVersion is the version of a new row, for gaps. Default 1.
	FirstVersion *int64 `yaml:"first_version"`
	// Exemption is how long an event may wait for the relay. Default 5 m.
	Exemption time.Duration `yaml:"exemption"`
	// Deadline is how long a consumer may take for a sent event. Default 5 m.
	Deadline time.Duration `yaml:"deadline"`
	// Confirm are the waits, from the first sight, after which a difference is
	// read again; it is reported if it is there each time. A recent event is
	// also given its Deadline. Default 2 s, 10 s.
	Confirm []time.Duration `yaml:"confirm"`
	// LogRetention is the age at which events are removed from the log. Zero:
	// they never are.
	LogRetention time.Duration `yaml:"log_retention"`
	// Window is how far back a run of recent changes looks. Default 7 days.
	Window time.Duration `yaml:"window"`
	// Split allows Write and Log in two databases. They are then not read in one
	// snapshot, and a row may look newer than its event for a moment.
	Split bool `yaml:"split"`
	// ChunkRows is about how many rows of an arm are read, and held in memory, at
	// once. Default 5,000. A range of which PostgreSQL sends only digests has ten
	// times as many.
	ChunkRows int `yaml:"chunk_rows"`
	// StatementTimeout bounds one statement. Default 30 s.
	StatementTimeout time.Duration `yaml:"statement_timeout"`
	// Duty is the share of its time that a run works; the rest it leaves the
	// databases to others. Above 0, at most 1. Default 1: all of it, and then with
	// several connections at once.
	Duty float64 `yaml:"duty"`
	// MaxFindings bounds the findings that a report lists; all are counted.
	// Default 10,000.
	MaxFindings int `yaml:"max_findings"`
	// Reissue says how an event is made of a row that has none, for repairs. The
	// type of its void events joins the log's Deletes.
	Reissue *ReissueMap    `yaml:"reissue" json:"-"`
	Repair  RepairSettings `yaml:"repair" json:"-"`
	// Schedule is when the check runs by itself.
	Schedule `yaml:",inline"`
}

// KeyPart is one part of the key. In YAML a name alone will do.
type KeyPart struct {
	Name string  `yaml:"name"`
	Type KeyKind `yaml:"type"` // default text
}

// UnmarshalYAML accepts a name instead of the whole.
func (k *KeyPart) UnmarshalYAML(unmarshal func(interface{}) error) error {
	type plain KeyPart
	if unmarshal(&k.Name) == nil {
		return nil
	}
	return unmarshal((*plain)(k))
}

// Table is a business table or a read model.
type Table struct {
	Database  string   `yaml:"database"` // one of Databases
	Schema    string   `yaml:"schema"`   // empty: the connection's own
	Table     string   `yaml:"table"`
	Key       []string `yaml:"key"`        // columns of the parts, where not named as the parts
	KeyStored []Stored `yaml:"key_stored"` // where not stored as the type usually is
	Version   string   `yaml:"version"`    // column of integers; NULL counts as 0
	UpdatedAt string   `yaml:"updated_at"` // optional
	EventID   string   `yaml:"event_id"`   // optional, of a read model: the event applied last
	// Deleted, optional, is a boolean, or a time that is NULL while the row is
	// alive.
	Deleted string            `yaml:"deleted"`
	Where   map[string]string `yaml:"where"` // column to the value it must have

	bare []bool // by part of the key: the column sorts as keys do
}

// Stored is the form in which a table keeps a part of its key, where it is
// not the usual one.
type Stored string

// The forms: a UUID or an integer kept as text, a UUID kept as 16 bytes. The
// usual one of a UUID is PostgreSQL's type, elsewhere text.
const (
	StoredNative Stored = ""
	StoredText   Stored = "text"
	StoredBinary Stored = "binary"
)

// Log is a table of events.
type Log struct {
	Table `yaml:",inline"`

	Outbox *Outbox `yaml:"outbox"` // the log is the outbox of this module; all else has defaults then

	State   string   `yaml:"state"`   // column; empty: every event counts as sent
	Sent    []string `yaml:"sent"`    // words of State. Default SENT
	Pending []string `yaml:"pending"` // default PENDING
	Dead    []string `yaml:"dead"`    // default DEAD
	Skipped []string `yaml:"skipped"` // default SKIPPED
	// Queued, optional, is a boolean column: a pending event without it will
	// never be sent.
	Queued    string   `yaml:"queued"`
	CreatedAt string   `yaml:"created_at"` // optional; without it a pending event counts as late
	SentAt    string   `yaml:"sent_at"`    // optional; else CreatedAt counts
	Type      string   `yaml:"type"`       // column, needed for Deletes
	Deletes   []string `yaml:"deletes"`    // types that say that the row is gone
	Payload   string   `yaml:"payload"`    // column of JSON that paths of Column.Log lead into
}

// Column is a compared column. In YAML a name alone will do.
type Column struct {
	Name string `yaml:"name"`
	// Write, Log and Read are the arms' columns. Empty: named as Name. "-": the
	// arm has none. Of a log with a payload it is a path into that, as
	// customer.address.city.
	Write string `yaml:"write"`
	Log   string `yaml:"log"`
	Read  string `yaml:"read"`
	As    Kind   `yaml:"as"` // default: by the database's type
	// Digits are the fractional digits of a time that all arms keep, where the
	// driver does not tell.
	Digits *int `yaml:"digits"`
}

// UnmarshalYAML accepts a name instead of the whole.
func (c *Column) UnmarshalYAML(unmarshal func(interface{}) error) error {
	type plain Column
	if unmarshal(&c.Name) == nil {
		return nil
	}
	return unmarshal((*plain)(c))
}

func (c *Column) in(name string) string {
	switch name {
	case "":
		return c.Name
	case "-":
		return ""
	}
	return name
}

// Complete returns a copy with all defaults, or what is wrong with the check.
func (c Check) Complete() (*Check, error) { return c.withDefaults() }

// withDefaults returns a copy that is complete, or what is wrong with it.
func (c Check) withDefaults() (*Check, error) {
	if c.Exemption == 0 {
		c.Exemption = 5 * time.Minute
	}
	if c.Deadline == 0 {
		c.Deadline = 5 * time.Minute
	}
	if c.Confirm == nil {
		c.Confirm = []time.Duration{2 * time.Second, 10 * time.Second}
	}
	c.Confirm = slices.Sorted(slices.Values(c.Confirm))
	if c.ChunkRows == 0 {
		c.ChunkRows = 5000
	}
	if c.Window == 0 {
		c.Window = 7 * 24 * time.Hour
	}
	if c.Duty == 0 {
		c.Duty = 1
	}
	if c.StatementTimeout == 0 {
		c.StatementTimeout = 30 * time.Second
	}
	if c.MaxFindings == 0 {
		c.MaxFindings = 10_000
	}
	if c.FirstVersion == nil {
		c.FirstVersion = new(int64(1))
	}
	if c.Events == "" {
		c.Events = "state"
	}
	if c.Density == "" {
		c.Density = "latest"
	}
	c.Schedule = c.Schedule.withDefaults()
	c.Key = slices.Clone(c.Key)
	for i := range c.Key {
		if c.Key[i].Type == "" {
			c.Key[i].Type = KeyText
		}
	}
	c.Write, c.Read = c.Write.withDefaults(c.Key), c.Read.withDefaults(c.Key)
	if c.Log != nil {
		log := *c.Log
		if log.Outbox != nil {
			log.Outbox.fill(&log, c.Key)
		}
		log.Table = *log.withDefaults(c.Key)
		for words, word := range map[*[]string]string{&log.Sent: "SENT", &log.Pending: "PENDING", &log.Dead: "DEAD", &log.Skipped: "SKIPPED"} {
			if *words == nil {
				*words = []string{word}
			}
		}
		c.Log = &log
	}
	c.Repair = c.Repair.withDefaults()
	if c.Reissue = c.Reissue.withDefaults(c.Log); c.Reissue != nil && c.Log != nil && c.Reissue.Voided != "" && !slices.Contains(c.Log.Deletes, c.Reissue.Voided) {
		c.Log.Deletes = append(slices.Clone(c.Log.Deletes), c.Reissue.Voided)
	}
	if err := c.validate(); err != nil {
		return nil, &waybill.Error{Op: "check", Key: c.Name, Err: err}
	}
	return &c, nil
}

func (t *Table) withDefaults(key []KeyPart) *Table {
	if t == nil {
		return nil
	}
	table := *t
	if len(table.Key) == 0 {
		for _, part := range key {
			table.Key = append(table.Key, part.Name)
		}
	}
	if len(table.KeyStored) == 0 {
		table.KeyStored = make([]Stored, len(key))
	}
	return &table
}

func (c *Check) validate() error {
	var wrong []error
	refuse := func(format string, args ...interface{}) { wrong = append(wrong, fmt.Errorf(format, args...)) }
	if len(c.Key) == 0 {
		refuse("key: name at least one column")
	}
	for _, part := range c.Key {
		if !slices.Contains([]KeyKind{KeyText, KeyInteger, KeyUUID, KeyBinary}, part.Type) {
			refuse("key: %s: the type %q is none of text, integer, uuid, binary", part.Name, part.Type)
		}
		if part.Name == "" {
			refuse("key: a part has no name")
		}
	}
	arms := 0
	for name, table := range map[string]*Table{"write": c.Write, "log": c.Log.table(), "read": c.Read} {
		if table == nil {
			continue
		}
		arms++
		switch {
		case table.Table == "":
			refuse("%s: table is missing", name)
		case table.Version == "":
			refuse("%s: version is missing", name)
		case len(table.Key) != len(c.Key):
			refuse("%s: key has %d columns, want %d", name, len(table.Key), len(c.Key))
		case len(table.KeyStored) != len(c.Key):
			refuse("%s: key_stored has %d entries, want %d", name, len(table.KeyStored), len(c.Key))
		}
		for _, stored := range table.KeyStored {
			if !slices.Contains([]Stored{StoredNative, StoredText, StoredBinary}, stored) {
				refuse("%s: key_stored: %q is neither text nor binary", name, stored)
			}
		}
	}
	if arms < 2 {
		refuse("two of write, log and read are needed, %d given", arms)
	}
	if c.Write != nil && c.Log != nil && c.Write.Database != c.Log.Database && !c.Split {
		refuse("write and log are in two databases, so no snapshot covers both: say split: true to accept that")
	}
	if c.Log != nil && c.Log.Outbox != nil && c.Log.Outbox.Forgets && c.Density == "every_version" {
		refuse("density: every_version needs the events that a relay which forgets removes")
	}
	if c.Log != nil {
		wrong = append(wrong, c.Log.validate()...)
	}
	for i := range c.Compare {
		if column := &c.Compare[i]; column.Name == "" {
			refuse("compare: a column has no name")
		} else if !slices.Contains(columnKinds, column.As) {
			refuse("compare: %s: unknown kind %q", column.Name, column.As)
		}
	}
	if c.Events != "state" && c.Events != "delta" {
		refuse("events: %q is neither state nor delta", c.Events)
	}
	if c.Density != "latest" && c.Density != "every_version" {
		refuse("density: %q is neither latest nor every_version", c.Density)
	}
	for name, d := range map[string]time.Duration{"exemption": c.Exemption, "deadline": c.Deadline, "log_retention": c.LogRetention, "statement_timeout": c.StatementTimeout, "window": c.Window} {
		if d < 0 {
			refuse("%s: %s is negative", name, d)
		}
	}
	if len(c.Confirm) > 0 && c.Confirm[0] < 0 {
		refuse("confirm: %s is negative", c.Confirm[0])
	}
	if !(c.Duty > 0 && c.Duty <= 1) {
		refuse("duty: %g is not above 0 and at most 1", c.Duty)
	}
	if c.ChunkRows < 0 || c.MaxFindings < 0 {
		refuse("chunk_rows and max_findings: must not be negative")
	}
	if c.Reissue != nil {
		wrong = append(wrong, c.Reissue.validate(c)...)
	}
	if c.Repair.Rate < 0 || *c.Repair.ApproveAbove < 0 {
		refuse("repair: rate and approve_above must not be negative")
	}
	c.Schedule.validate(refuse)
	if c.Consumer != nil && c.Consumer.Group == "" {
		refuse("consumer: group is missing")
	}
	slices.SortFunc(wrong, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(wrong...)
}

func (l *Log) table() *Table {
	if l == nil {
		return nil
	}
	return &l.Table
}

func (l *Log) validate() (wrong []error) {
	if l.Outbox != nil && l.Outbox.AggregateType == "" {
		wrong = append(wrong, errors.New("log: outbox: aggregate_type is missing"))
	}
	if l.Outbox != nil && l.Outbox.Forgets && !l.Outbox.Head {
		wrong = append(wrong, errors.New("log: outbox: forgets needs head: without events and heads there is nothing to compare with"))
	}
	if len(l.Deletes) > 0 && l.Type == "" {
		wrong = append(wrong, errors.New("log: deletes needs type, the column that holds the event's type"))
	}
	seen := make(map[string]bool)
	for _, words := range [][]string{l.Sent, l.Pending, l.Dead, l.Skipped} {
		for _, word := range words {
			if seen[word] {
				wrong = append(wrong, fmt.Errorf("log: the word %q stands for two states", word))
			}
			seen[word] = true
		}
	}
	return wrong
}

// state translates the log's word. A word in another case is another word.
func (l *Log) state(word string) State {
	switch {
	case l.State == "" || slices.Contains(l.Sent, word):
		return StateSent
	case slices.Contains(l.Pending, word):
		return StatePending
	case slices.Contains(l.Dead, word):
		return StateDead
	case slices.Contains(l.Skipped, word):
		return StateSkipped
	}
	return StateOther
}

func (c *Check) kinds() []KeyKind {
	kinds := make([]KeyKind, len(c.Key))
	for i, part := range c.Key {
		kinds[i] = part.Type
	}
	return kinds
}

// rules returns what Judge needs, but for the time.
func (c *Check) rules() Rules {
	r := Rules{
		HasWrite: c.Write != nil, HasLog: c.Log != nil, HasRead: c.Read != nil,
		EveryVersion: c.Density == "every_version", FirstVersion: *c.FirstVersion, Delta: c.Events == "delta",
		Exemption: c.Exemption, Deadline: c.Deadline,
	}
	for i := range c.Compare {
		column := &c.Compare[i]
		r.Columns = append(r.Columns, Comparison{
			Name: column.Name, Write: r.HasWrite && column.in(column.Write) != "",
			Log: r.HasLog && column.in(column.Log) != "", Read: r.HasRead && column.in(column.Read) != "",
		})
	}
	return r
}

// blind lists the classes that a check with two arms cannot see.
func (c *Check) blind() []string {
	switch {
	case c.Write == nil:
		return []string{"MISSING_EVENT, ORPHAN_EVENT and MISMATCH_WRITE: the check has no write side"}
	case c.Log == nil:
		return []string{"MISSING_EVENT, ORPHAN_EVENT and MISMATCH_WRITE: the check has no log; the read side is judged against the row"}
	case c.Read == nil:
		return []string{"MISMATCH_READ: the check has no read side"}
	}
	return nil
}
