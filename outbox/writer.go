package outbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
)

// Config adjusts a [Writer]. Its zero value, and nil, are right for most.
type Config struct {
	// MaxDataBytes limits Event.Data, in bytes. 0 means waybill.MaxDataBytes. It
	// should not be above the broker's own limit.
	MaxDataBytes int
	// Source is given to events that name none.
	Source string
	// Stamp, if set, completes each event from the context of the append before
	// it is validated: a trace context, say. It gets a copy of the caller's event.
	Stamp func(ctx context.Context, event *waybill.Event)
	// Validator, if set, judges each event's data before any SQL: an event whose
	// data does not fit is refused like any other that is not valid.
	Validator waybill.Validator
}

// Writer appends events to the outbox inside the caller's transactions, whose
// type is TX. It may be used from several goroutines.
type Writer[TX any] struct {
	appender store.Appender[TX]
	config   Config
}

// NewWriter returns a writer over a store's appender.
func NewWriter[TX any](appender store.Appender[TX], config *Config) *Writer[TX] {
	w := &Writer[TX]{appender: appender}
	if config != nil {
		w.config = *config
	}
	return w
}

// Append inserts the events. They exist for everyone else when, and only when,
// the transaction commits.
//
// All events are validated before any SQL runs: one that is not valid fails the
// call, with an error that wraps [waybill.ErrInvalidEvent], and appends none.
// An id that the outbox has already is reported by an error that wraps
// [waybill.ErrDuplicateEvent], one for each such event joined by [errors.Join];
// the others are appended, and the transaction may go on. After any other
// error the transaction must be rolled back.
func (w *Writer[TX]) Append(ctx context.Context, tx TX, events ...waybill.Event) error {
	prepared, err := w.prepare(ctx, events)
	if err != nil || len(prepared) == 0 {
		return err
	}
	results, err := w.appender.Append(ctx, tx, prepared)
	if err != nil {
		return err
	}
	return errors.Join(results...)
}

// AppendMissing is Append for producers that may repeat themselves, usually
// with ids from [waybill.KeyID]: an event that the outbox has already is passed
// over when its content is the same (OccurredAt aside), and reported as a
// duplicate when it differs.
func (w *Writer[TX]) AppendMissing(ctx context.Context, tx TX, events ...waybill.Event) error {
	prepared, err := w.prepare(ctx, events)
	if err != nil || len(prepared) == 0 {
		return err
	}
	results, err := w.appender.Append(ctx, tx, prepared)
	if err != nil {
		return err
	}
	var ids []string
	for i, result := range results {
		if errors.Is(result, waybill.ErrDuplicateEvent) {
			ids = append(ids, prepared[i].ID)
		}
	}
	if len(ids) == 0 {
		return errors.Join(results...)
	}
	existing, err := w.appender.Existing(ctx, tx, ids)
	if err != nil {
		return err
	}
	stored := make(map[string]*waybill.Event, len(existing))
	for i := range existing {
		stored[existing[i].ID] = &existing[i]
	}
	for i, result := range results {
		if old := stored[prepared[i].ID]; old != nil && errors.Is(result, waybill.ErrDuplicateEvent) && sameContent(old, &prepared[i]) {
			results[i] = nil
		}
	}
	return errors.Join(results...)
}

// CommitWriter is a [Writer] over a store that can append and commit in one
// trip. It may be used from several goroutines.
type CommitWriter[TX any] struct {
	*Writer[TX]
	appender store.CommitAppender[TX]
}

// NewCommitWriter returns a writer over a store's appender that commits.
func NewCommitWriter[TX any](appender store.CommitAppender[TX], config *Config) *CommitWriter[TX] {
	return &CommitWriter[TX]{Writer: NewWriter(appender, config), appender: appender}
}

// AppendCommit appends the events, as [Writer.Append] does, and commits. All is
// committed or nothing is: an event that is not valid fails the call and leaves
// the transaction as it is, for the caller to roll back; after any other error,
// a duplicate included, it has ended without effect.
func (w *CommitWriter[TX]) AppendCommit(ctx context.Context, tx TX, events ...waybill.Event) error {
	prepared, err := w.prepare(ctx, events)
	if err != nil {
		return err
	}
	return w.appender.AppendCommit(ctx, tx, prepared)
}

func (w *Writer[TX]) prepare(ctx context.Context, events []waybill.Event) ([]waybill.Event, error) {
	now := time.Now()
	prepared := make([]waybill.Event, len(events))
	var errs []error
	for i := range events {
		prepared[i] = events[i]
		e := &prepared[i]
		if e.Source == "" {
			e.Source = w.config.Source
		}
		if w.config.Stamp != nil {
			w.config.Stamp(ctx, e)
		}
		e.Normalize(now)
		err := e.Validate(w.config.MaxDataBytes)
		if err == nil && w.config.Validator != nil {
			if err = w.config.Validator.ValidateData(e); err != nil {
				err = &waybill.Error{Op: "validate data of event", Key: e.ID, Err: fmt.Errorf("%w: %w", waybill.ErrInvalidEvent, err)}
			}
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	return prepared, errors.Join(errs...)
}

func sameContent(a, b *waybill.Event) bool {
	x, y := *a, *b
	return x.ID == y.ID && x.Type == y.Type && x.SchemaVersion == y.SchemaVersion && x.Topic == y.Topic && x.Key == y.Key &&
		x.TenantID == y.TenantID && x.AggregateType == y.AggregateType && x.AggregateID == y.AggregateID &&
		x.AggregateVersion == y.AggregateVersion && x.ContentType == y.ContentType && x.Source == y.Source &&
		x.CorrelationID == y.CorrelationID && x.CausationID == y.CausationID &&
		bytes.Equal(x.Data, y.Data) && maps.Equal(x.Headers, y.Headers)
}
