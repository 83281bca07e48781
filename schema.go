package waybill

import "errors"

// Validator judges an event's data by the schema of its type and version. The
// writer of an outbox asks it before an append, a consumer before its handler.
type Validator interface {
	// ValidateData returns nil for data that fits, and for a type that has no
	// schema at all. Otherwise the error wraps [ErrInvalidData], or
	// [ErrUnknownSchema] where the type has schemas and none of this version. It
	// may be called from several goroutines and does not change the event.
	ValidateData(event *Event) error
}

var (
	// ErrInvalidData says that an event's data does not fit its schema.
	ErrInvalidData = errors.New("data does not fit its schema")
	// ErrUnknownSchema says that nothing is known of this version of an event's
	// schema: its producer is newer than this program.
	ErrUnknownSchema = errors.New("unknown schema version")
)
