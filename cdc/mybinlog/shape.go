package mybinlog

import (
	"context"
	"slices"
	"strings"

	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"
)

// shape is a table as the log describes it before rows of it.
type shape struct {
	outbox bool // or else the table of marks
	kinds  []byte
	meta   []uint16
	// wanted are the places of the columns that are read: the id, or the key and
	// the value of a mark. -1 where it is not known.
	wanted   [2]int
	unsigned bool // the id has no sign
	// text is the description itself, to know it again.
	text string
}

// column is one of a table as the catalogue has it now.
type column struct {
	name, kind string
	unsigned   bool
}

// catalogue reads the columns of a table, in their order.
type catalogue func(ctx context.Context, table string) ([]column, error)

// newShape looks for the columns. The log may name them itself, see
// binlog_row_metadata. Where it does not, the catalogue is asked, which tells how
// the table is now: its answer holds only where all types are those of the log.
func newShape(ctx context.Context, t *replication.TableMapEvent, names []string, outbox bool, ask catalogue) *shape {
	s := &shape{outbox: outbox, kinds: slices.Clone(t.ColumnType), meta: t.ColumnMeta, wanted: [2]int{-1, -1}}
	if len(t.ColumnName) == len(s.kinds) {
		for i, logged := range t.ColumnName {
			s.want(names, i, string(logged))
		}
		s.unsigned = s.wanted[0] >= 0 && unsignedIn(t, s.wanted[0])
		return s
	}
	columns, err := ask(ctx, string(t.Table))
	if err != nil || !s.fits(columns) {
		return s
	}
	for i, have := range columns {
		if s.want(names, i, have.name) && outbox {
			s.unsigned = have.unsigned
		}
	}
	return s
}

// fits reports whether the columns can be those of the log.
func (s *shape) fits(columns []column) bool {
	if len(columns) != len(s.kinds) {
		return false
	}
	for i, have := range columns {
		if !have.logsAs(s.kinds[i], s.meta[i]) {
			return false
		}
	}
	return true
}

func (s *shape) want(names []string, place int, name string) bool {
	for i, wanted := range names {
		if strings.EqualFold(name, wanted) {
			s.wanted[i] = place
			return true
		}
	}
	return false
}

// unsignedIn reads the sign of a column: the log has one bit for each that is a
// number, the highest first.
func unsignedIn(t *replication.TableMapEvent, place int) bool {
	bit := 0
	for i := range place {
		if isNumber(t.ColumnType[i]) {
			bit++
		}
	}
	return bit/8 < len(t.SignednessBitmap) && t.SignednessBitmap[bit/8]&(0x80>>(bit%8)) != 0
}

func isNumber(kind byte) bool {
	switch kind {
	case mysql.MYSQL_TYPE_TINY, mysql.MYSQL_TYPE_SHORT, mysql.MYSQL_TYPE_INT24, mysql.MYSQL_TYPE_LONG, mysql.MYSQL_TYPE_LONGLONG,
		mysql.MYSQL_TYPE_NEWDECIMAL, mysql.MYSQL_TYPE_FLOAT, mysql.MYSQL_TYPE_DOUBLE, mysql.MYSQL_TYPE_YEAR:
		return true
	}
	return false
}

// kindsOf is how types are logged. A type that is not among them fits any: it
// only makes the comparison weaker.
var kindsOf = map[string][]byte{
	"tinyint":   {mysql.MYSQL_TYPE_TINY},
	"smallint":  {mysql.MYSQL_TYPE_SHORT},
	"mediumint": {mysql.MYSQL_TYPE_INT24},
	"int":       {mysql.MYSQL_TYPE_LONG},
	"bigint":    {mysql.MYSQL_TYPE_LONGLONG},
	"float":     {mysql.MYSQL_TYPE_FLOAT},
	"double":    {mysql.MYSQL_TYPE_DOUBLE},
	"decimal":   {mysql.MYSQL_TYPE_NEWDECIMAL},
	"bit":       {mysql.MYSQL_TYPE_BIT},
	"year":      {mysql.MYSQL_TYPE_YEAR},
	"date":      {mysql.MYSQL_TYPE_DATE, mysql.MYSQL_TYPE_NEWDATE},
	"time":      {mysql.MYSQL_TYPE_TIME, mysql.MYSQL_TYPE_TIME2},
	"datetime":  {mysql.MYSQL_TYPE_DATETIME, mysql.MYSQL_TYPE_DATETIME2},
	"timestamp": {mysql.MYSQL_TYPE_TIMESTAMP, mysql.MYSQL_TYPE_TIMESTAMP2},
	"varchar":   {mysql.MYSQL_TYPE_VARCHAR, mysql.MYSQL_TYPE_VAR_STRING},
	"varbinary": {mysql.MYSQL_TYPE_VARCHAR, mysql.MYSQL_TYPE_VAR_STRING},
	"char":      {mysql.MYSQL_TYPE_STRING},
	"binary":    {mysql.MYSQL_TYPE_STRING},
	"enum":      {mysql.MYSQL_TYPE_STRING, mysql.MYSQL_TYPE_ENUM},
	"set":       {mysql.MYSQL_TYPE_STRING, mysql.MYSQL_TYPE_SET},
	"json":      {mysql.MYSQL_TYPE_JSON},
}

// logsAs reports whether a column of this type can be logged with the kind.
func (c column) logsAs(kind byte, meta uint16) bool {
	switch c.kind {
	case "tinyblob", "tinytext":
		return kind == mysql.MYSQL_TYPE_BLOB && meta == 1
	case "blob", "text":
		return kind == mysql.MYSQL_TYPE_BLOB && meta == 2
	case "mediumblob", "mediumtext":
		return kind == mysql.MYSQL_TYPE_BLOB && meta == 3
	case "longblob", "longtext":
		return kind == mysql.MYSQL_TYPE_BLOB && meta == 4
	}
	kinds, known := kindsOf[c.kind]
	for _, one := range kinds {
		if one == kind {
			return true
		}
	}
	return !known
}

// number reads an integer column.
func (s *shape) number(value []byte) (id int64, ok bool) {
	switch s.kinds[s.wanted[0]] {
	case mysql.MYSQL_TYPE_TINY, mysql.MYSQL_TYPE_SHORT, mysql.MYSQL_TYPE_INT24, mysql.MYSQL_TYPE_LONG, mysql.MYSQL_TYPE_LONGLONG:
	default:
		return 0, false
	}
	raw := little(value)
	if shift := 64 - 8*len(value); !s.unsigned {
		id = int64(raw<<shift) >> shift
	} else {
		id = int64(raw)
	}
	return id, id > 0
}
