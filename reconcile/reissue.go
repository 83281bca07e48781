package reconcile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/waybillhq/waybill"
)

// Reissuer makes the event that a business row should have had. One that is
// written in Go takes the place of the check's [ReissueMap], for payloads that
// a map of columns cannot make.
//
// Reissue is called when a plan is made, and what it returns is what the plan
// shows, what is approved and what is written. It must return the same for the
// same row. Id, aggregate and version are set by the caller, and so are the
// topic and the key where they are left empty: to those of the latest event of
// the same row. An error leaves the finding for a person, with the error as the
// reason.
type Reissuer interface {
	Reissue(ctx context.Context, row *ReissueRow) (waybill.Event, error)
}

// ReissueRow is a business row of which an event is to tell.
type ReissueRow struct {
	Key     []string         // the texts of its parts
	Version int64            // that the event will have
	Columns map[string]Value // the compared columns by their names in the check, and those that the map names
}

// ReissueMap says how the event of a row is made where it was never written.
// The payload has the compared columns at the places where the check looks for
// them, and whatever Data adds.
type ReissueMap struct {
	Topic  string            `yaml:"topic"`   // default: that of the row's latest event
	Type   string            `yaml:"type"`    // of the event
	TypeBy string            `yaml:"type_by"` // column of the business table whose value decides instead
	Types  map[string]string `yaml:"types"`   // value of that column to type; Type is for all others
	// Voided is the type of the event that takes back those of a row that is not
	// there. It counts as a delete for the check, and has to for consumers. Default:
	// the aggregate type with a capital letter, and Voided.
	Voided        string `yaml:"voided"`
	AggregateType string `yaml:"aggregate_type"` // default: that of the outbox
	SchemaVersion int    `yaml:"schema_version"` // of the payload. Default 1
	// Data are further members of the payload: path to column of the business table.
	Data map[string]string `yaml:"data"`
}

// withDefaults returns a copy that is complete.
func (m *ReissueMap) withDefaults(log *Log) *ReissueMap {
	if m == nil {
		return nil
	}
	c := *m
	if c.AggregateType == "" && log != nil && log.Outbox != nil {
		c.AggregateType = log.Outbox.AggregateType
	}
	if c.Voided == "" && c.AggregateType != "" {
		first, size := utf8.DecodeRuneInString(c.AggregateType)
		c.Voided = string(unicode.ToUpper(first)) + c.AggregateType[size:] + "Voided"
	}
	return &c
}

func (m *ReissueMap) validate(c *Check) (wrong []error) {
	refuse := func(text string) { wrong = append(wrong, errors.New("reissue: "+text)) }
	switch {
	case c.Write == nil || c.Log == nil:
		refuse("the check needs a write side and a log")
	case c.Log.Type == "":
		refuse("log: type is missing, the column that tells a void event from others")
	}
	if m.Type == "" && len(m.Types) == 0 {
		refuse("type is missing")
	}
	if len(m.Types) > 0 && m.TypeBy == "" {
		refuse("types needs type_by, the column whose values it lists")
	}
	if m.AggregateType == "" {
		refuse("aggregate_type is missing")
	}
	if m.Topic != "" && !waybill.ValidTopic(m.Topic) {
		refuse("topic: only letters, digits, '.', '_' and '-'")
	}
	return wrong
}

// extra are the columns that the map reads beside the compared ones.
func (m *ReissueMap) extra() (names []string) {
	if m == nil {
		return nil
	}
	for _, name := range m.Data {
		names = append(names, name)
	}
	if m.TypeBy != "" {
		names = append(names, m.TypeBy)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// mapped is the Reissuer that a check's map makes.
type mapped struct {
	*ReissueMap
	compare []Column
}

func (m mapped) Reissue(_ context.Context, row *ReissueRow) (waybill.Event, error) {
	e := waybill.Event{Topic: m.Topic, Type: m.Type, SchemaVersion: m.SchemaVersion}
	if m.TypeBy != "" {
		value := row.Columns[m.TypeBy]
		if named, ok := m.Types[value.plain()]; ok {
			e.Type = named
		}
		if e.Type == "" {
			return e, fmt.Errorf("the map has no type for %s = %s", m.TypeBy, value)
		}
	}
	document := make(map[string]any)
	for i := range m.compare {
		if c := &m.compare[i]; c.in(c.Log) != "" && c.in(c.Write) != "" {
			if err := plant(document, c.in(c.Log), row.Columns[c.Name]); err != nil {
				return e, err
			}
		}
	}
	for _, path := range slices.Sorted(maps.Keys(m.Data)) {
		if err := plant(document, path, row.Columns[m.Data[path]]); err != nil {
			return e, err
		}
	}
	var err error
	e.Data, err = json.Marshal(document)
	return e, err
}

// plant sets a member of a document, as lookup finds it.
func plant(document map[string]any, path string, value Value) error {
	node, err := value.node()
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	names := strings.Split(strings.TrimPrefix(path, "$."), ".")
	for _, name := range names[:len(names)-1] {
		inner, there := document[name]
		if !there {
			inner = make(map[string]any)
			document[name] = inner
		}
		object, ok := inner.(map[string]any)
		if !ok {
			return fmt.Errorf("%s: the member %s is no object", path, name)
		}
		document = object
	}
	document[names[len(names)-1]] = node
	return nil
}

// node returns the value as a document holds it, so that it is equal when it is
// read there.
func (v Value) node() (any, error) {
	switch v.Kind() {
	case KindNull:
		return nil, nil
	case KindBool:
		return v.text == "true", nil
	case KindNumber:
		if !json.Valid([]byte(v.text)) {
			return nil, fmt.Errorf("%s is no number of JSON", v.text)
		}
		return json.Number(v.text), nil
	case KindJSON:
		return json.RawMessage(v.raw), nil
	case KindTime:
		return v.String(), nil
	case KindUUID:
		return v.text, nil
	case KindBinary:
		if !utf8.ValidString(v.text) {
			return nil, errors.New("bytes that are no text have no form in JSON: write a Reissuer")
		}
		return v.text, nil
	}
	return v.raw, nil
}

// plain returns the value as it would be written in a file of checks.
func (v Value) plain() string {
	if v.Kind() == KindText {
		return v.raw
	}
	return v.String()
}
