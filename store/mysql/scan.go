package mysql

import (
	"bytes"
	"database/sql"
	"fmt"
	"strconv"
	"time"

	"github.com/waybillhq/waybill/store"
)

// loadScan receives loadColumns of row after row. What it scans into are types of
// its own, because database/sql takes long to convert to any others. Most rows
// repeat most texts of the one before, whose memory they then share.
type loadScan struct {
	id, lane, keyHash, topicHash     number
	parked, skip, retries            number
	retryIn, age                     number
	version, schemaVersion, size     number
	status, firstError, lastError    recurring
	eventID, tenant, kind, aggregate recurring
	eventType, topic, key            recurring
	contentType, headers             recurring
	occurred                         moment
	data                             arena
	targets                          []any
}

func newLoadScan() *loadScan {
	s := &loadScan{}
	s.targets = []any{
		&s.id, &s.lane, &s.keyHash, &s.topicHash, &s.status, &s.parked, &s.skip, &s.retries,
		&s.retryIn, &s.firstError, &s.lastError, &s.age,
		&s.eventID, &s.tenant, &s.kind, &s.aggregate, &s.version, &s.eventType, &s.schemaVersion, &s.topic, &s.key,
		&s.contentType, &s.headers, &s.occurred, &s.size, &s.data,
	}
	return s
}

// row returns a row, and the size of its payload, which may be left out.
func (s *loadScan) row(rows *sql.Rows) (*store.Row, int, error) {
	if err := rows.Scan(s.targets...); err != nil {
		return nil, 0, err
	}
	row := &store.Row{
		ID: s.id.n, Lane: int(s.lane.n), KeyHash: s.keyHash.n, TopicHash: s.topicHash.n,
		Status: store.Status(s.status.text), Parked: s.parked.n != 0, Skip: s.skip.n != 0, Retries: int(s.retries.n),
		HasRetry: s.retryIn.set, RetryIn: time.Duration(s.retryIn.n) * time.Microsecond,
		FirstErr: s.firstError.text, LastErr: s.lastError.text, Age: max(time.Duration(s.age.n)*time.Microsecond, 0),
	}
	e := &row.Event
	e.ID, e.TenantID, e.AggregateType, e.AggregateID = s.eventID.text, s.tenant.text, s.kind.text, s.aggregate.text
	e.AggregateVersion, e.Type, e.SchemaVersion, e.Topic = s.version.n, s.eventType.text, int(s.schemaVersion.n), s.topic.text
	e.Key, e.ContentType, e.OccurredAt, e.Data = s.key.text, s.contentType.text, s.occurred.Time, s.data.last
	if e.Key == "" || e.Key == e.AggregateID {
		e.Key = e.AggregateID
	}
	// Headers that cannot be read are left out: the table takes JSON objects only,
	// and one odd row must not stop its lane.
	_ = e.UnmarshalHeaders([]byte(s.headers.text))
	return row, int(s.size.n), nil
}

// number receives a whole number, or NULL.
type number struct {
	n   int64
	set bool
}

// Scan implements sql.Scanner.
func (n *number) Scan(value any) (err error) {
	switch v := value.(type) {
	case nil:
		*n = number{}
		return nil
	case int64:
		*n = number{v, true}
		return nil
	case []byte:
		n.n, err = strconv.ParseInt(string(v), 10, 64)
		n.set = true
		return err
	}
	return fmt.Errorf("a number came as %T", value)
}

// recurring receives a text that is often the one of the row before; NULL is "".
type recurring struct{ text string }

// Scan implements sql.Scanner.
func (r *recurring) Scan(value any) error {
	switch v := value.(type) {
	case nil:
		r.text = ""
	case []byte:
		if string(v) != r.text {
			r.text = string(v)
		}
	case string:
		r.text = v
	default:
		return fmt.Errorf("a text came as %T", value)
	}
	return nil
}

// arena receives bytes. Small ones are kept many to a piece of memory.
type arena struct {
	chunk []byte
	last  []byte
}

const chunkBytes = 16 << 10

// Scan implements sql.Scanner.
func (a *arena) Scan(value any) error {
	data, ok := value.([]byte)
	switch {
	case value == nil:
		a.last = nil
	case !ok:
		return fmt.Errorf("bytes came as %T", value)
	case len(data) > chunkBytes/4:
		a.last = bytes.Clone(data)
	default:
		if len(data) > cap(a.chunk)-len(a.chunk) {
			a.chunk = make([]byte, 0, chunkBytes)
		}
		from := len(a.chunk)
		a.chunk = append(a.chunk, data...)
		a.last = a.chunk[from:len(a.chunk):len(a.chunk)]
	}
	return nil
}
