package reconcile

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Kind is what a value is compared as.
type Kind string

// The kinds. KindAuto, for a column, takes the kind from the database's type.
const (
	KindAuto   Kind = ""
	KindNull   Kind = "null"
	KindBool   Kind = "bool"
	KindNumber Kind = "number"
	KindText   Kind = "text"
	KindBinary Kind = "binary"
	KindTime   Kind = "time"
	KindJSON   Kind = "json"
	KindUUID   Kind = "uuid"
)

// kindUnread is that of a member of a payload that is no JSON: it differs from
// every value, and none can be written for it.
const kindUnread Kind = "unread"

var unread = Value{kind: kindUnread, text: "(the payload is no JSON)", raw: "(the payload is no JSON)"}

var columnKinds = []Kind{KindAuto, KindBool, KindNumber, KindText, KindBinary, KindTime, KindJSON, KindUUID}

// Value is one column of one row in canonical form. The zero Value is NULL.
type Value struct {
	kind   Kind
	text   string // canonical; for binary the bytes themselves
	raw    string // as it was read, for people and for writing it elsewhere
	at     time.Time
	digits int // of a time: fractional digits that its column keeps
}

// Null is the value of an absent value.
var Null = Value{kind: KindNull}

// Kind returns what the value is.
func (v Value) Kind() Kind {
	if v.kind == "" {
		return KindNull
	}
	return v.kind
}

// IsNull reports whether the value is NULL.
func (v Value) IsNull() bool { return v.Kind() == KindNull }

// String returns the value for people: NULL bare, text quoted.
func (v Value) String() string {
	switch v.Kind() {
	case KindNull:
		return "NULL"
	case KindBinary:
		return "0x" + hex.EncodeToString([]byte(v.text))
	case KindText:
		return strconv.Quote(v.raw)
	case KindTime:
		return v.at.UTC().Format("2006-01-02T15:04:05.999999999Z")
	}
	return v.text
}

// MarshalJSON writes the value so that the kinds remain apart: NULL is null,
// everything else a string, binary in hex after 0x.
func (v Value) MarshalJSON() ([]byte, error) {
	switch v.Kind() {
	case KindNull:
		return []byte("null"), nil
	case KindText:
		return json.Marshal(v.raw)
	}
	return json.Marshal(v.String())
}

// UnmarshalJSON reads what MarshalJSON wrote. The kind is lost: everything but
// NULL is text, which is written again as it was.
func (v *Value) UnmarshalJSON(text []byte) error {
	var raw *string
	if err := json.Unmarshal(text, &raw); err != nil {
		return err
	}
	if *v = Null; raw != nil {
		*v = Value{kind: KindText, text: *raw, raw: *raw}
	}
	return nil
}

// column is how the values of one column are to be read.
type column struct {
	as       Kind   // what the check asks for
	database string // the driver's name of the type, upper case: "NUMERIC", "DATETIME(3)"
	digits   int    // fractional digits of a time; -1 for unknown
}

// kind derives the kind from the database's type. An unknown type leaves it to
// the Go value that the driver returned.
func (c column) kind() Kind {
	if c.as != KindAuto {
		return c.as
	}
	name, _, _ := strings.Cut(c.database, "(")
	name = strings.TrimPrefix(strings.TrimSpace(name), "UNSIGNED ")
	name, _, _ = strings.Cut(name, " ")
	switch name {
	case "NUMERIC", "DECIMAL", "NUMBER", "INT", "INTEGER", "INT2", "INT4", "INT8", "TINYINT", "SMALLINT", "MEDIUMINT",
		"BIGINT", "FLOAT", "FLOAT4", "FLOAT8", "DOUBLE", "REAL", "YEAR":
		return KindNumber
	case "BOOL", "BOOLEAN":
		return KindBool
	case "TIMESTAMP", "TIMESTAMPTZ", "DATETIME", "DATE":
		return KindTime
	case "JSON", "JSONB":
		return KindJSON
	case "UUID":
		return KindUUID
	case "BYTEA", "BLOB", "TINYBLOB", "MEDIUMBLOB", "LONGBLOB", "BINARY", "VARBINARY":
		return KindBinary
	case "TEXT", "VARCHAR", "CHAR", "BPCHAR", "NAME", "ENUM", "SET", "NVARCHAR", "NCHAR", "TINYTEXT", "MEDIUMTEXT", "LONGTEXT":
		return KindText
	}
	return KindAuto
}

// value makes what a driver returned canonical. What does not read as its
// column's kind is kept as text: it is then different from any that does, and
// shown as it is.
func (c column) value(got any) Value {
	kind := c.kind()
	switch x := got.(type) {
	case nil:
		return Null
	case bool:
		if kind == KindNumber {
			return parseValue(KindNumber, strconv.Itoa(map[bool]int{true: 1}[x]), c.digits)
		}
		return Value{kind: KindBool, text: strconv.FormatBool(x), raw: strconv.FormatBool(x)}
	case int64:
		return c.number(kind, strconv.FormatInt(x, 10))
	case uint64:
		return c.number(kind, strconv.FormatUint(x, 10))
	case int:
		return c.number(kind, strconv.Itoa(x))
	case int32:
		return c.number(kind, strconv.FormatInt(int64(x), 10))
	case float32:
		return c.number(kind, floatText(float64(x), 32))
	case float64:
		bits := 64
		if strings.HasPrefix(c.database, "FLOAT4") {
			bits = 32
		}
		return c.number(kind, floatText(x, bits))
	case json.Number:
		return c.number(kind, x.String())
	case time.Time:
		return timeValue(x, c.precision())
	case [16]byte:
		return parseValue(KindUUID, string(x[:]), c.digits)
	case string:
		if kind == KindAuto {
			kind = KindText
		}
		return parseValue(kind, x, c.precision())
	case []byte:
		if kind == KindAuto {
			if kind = KindBinary; utf8.Valid(x) && c.database == "" {
				kind = KindText
			}
		}
		return parseValue(kind, string(x), c.precision())
	}
	text := fmt.Sprint(got)
	return Value{kind: KindText, text: text, raw: text}
}

func (c column) number(kind Kind, text string) Value {
	switch kind {
	case KindBool, KindText, KindTime, KindJSON:
		return parseValue(kind, text, c.precision())
	}
	return parseValue(KindNumber, text, c.digits)
}

// precision returns the fractional digits that a time of the column can have.
func (c column) precision() int {
	if c.digits >= 0 {
		return c.digits
	}
	if _, rest, found := strings.Cut(c.database, "("); found {
		if n, err := strconv.Atoi(strings.TrimRight(rest, ") ")); err == nil && n >= 0 && n <= 9 {
			return n
		}
	}
	if c.database == "DATE" {
		return 0
	}
	return maxDigits
}

func floatText(f float64, bits int) string {
	switch {
	case math.IsNaN(f):
		return "NaN"
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	}
	return strconv.FormatFloat(f, 'g', -1, bits)
}

// parseValue reads text as a kind; what does not parse is text.
func parseValue(kind Kind, text string, digits int) Value {
	as := Value{kind: kind, raw: text}
	ok := true
	switch kind {
	case KindBool:
		as.text, ok = canonicalBool(text)
	case KindNumber:
		as.text, ok = canonicalNumber(text)
	case KindTime:
		var at time.Time
		if at, ok = parseTime(text); ok {
			as = timeValue(at, digits)
			as.raw = text
		}
	case KindJSON:
		as.text, ok = canonicalJSON(text)
	case KindUUID:
		as.text, ok = canonicalUUID(text)
	default:
		as.text = text
	}
	if !ok {
		return Value{kind: KindText, text: text, raw: text}
	}
	return as
}

func canonicalBool(text string) (string, bool) {
	switch strings.ToLower(text) {
	case "1", "t", "true", "\x01":
		return "true", true
	case "0", "f", "false", "\x00":
		return "false", true
	}
	return "", false
}

// canonicalUUID accepts the 16 bytes, and the usual text with or without
// hyphens and braces.
func canonicalUUID(text string) (string, bool) {
	digits := strings.ToLower(strings.ReplaceAll(strings.Trim(text, "{}"), "-", ""))
	if len(text) == 16 {
		digits = hex.EncodeToString([]byte(text))
	}
	if _, err := hex.DecodeString(digits); err != nil || len(digits) != 32 {
		return "", false
	}
	return digits[:8] + "-" + digits[8:12] + "-" + digits[12:16] + "-" + digits[16:20] + "-" + digits[20:], true
}
