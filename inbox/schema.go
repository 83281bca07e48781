package inbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/waybillhq/waybill"
)

// Schema says which versions of one event type's data a handler understands.
//
// The handler gets data of Version alone: older data goes through Upcasts first,
// one step at a time. Of a version that is newer, or older than the steps reach,
// the event is held DEAD, parked and without an attempt, because trying again
// cannot help: this program does not know it. A program that does know it, an
// update of this one, finds it by itself and handles it in its place in its key.
type Schema struct {
	// Version is what the handler understands. Required, from 1.
	Version int
	// Upcasts[v] makes data of version v+1 out of data of version v.
	Upcasts map[int]Upcast
}

// Upcast makes data of the next schema version. An error is final for the
// event: it is held DEAD.
type Upcast func(data []byte) ([]byte, error)

// UpcastObject returns an upcast of a JSON object, whose members are kept as they
// stand, byte by byte, unless change replaces them.
func UpcastObject(change func(object map[string]json.RawMessage) error) Upcast {
	return func(data []byte) ([]byte, error) {
		object := make(map[string]json.RawMessage)
		if err := json.Unmarshal(data, &object); err != nil {
			return nil, err
		}
		if err := change(object); err != nil {
			return nil, err
		}
		return json.Marshal(object)
	}
}

func (s Schema) check() error {
	if s.Version < 1 {
		return fmt.Errorf("version is %d: it counts from 1", s.Version)
	}
	for from, upcast := range s.Upcasts {
		if from < 1 || from >= s.Version || upcast == nil {
			return fmt.Errorf("there is an upcast from version %d, or none in its place; the handler understands %d", from, s.Version)
		}
	}
	return nil
}

// fit judges the event's data and brings it to the version that the handler
// understands.
func (c *Config) fit(e *waybill.Event) error {
	if err := c.validate(e); err != nil {
		return err
	}
	schema, listed := c.Schemas[e.Type]
	if !listed {
		return nil
	}
	version := max(e.SchemaVersion, 1)
	if version == schema.Version {
		return nil
	}
	for ; version < schema.Version; version++ {
		upcast := schema.Upcasts[version]
		if upcast == nil {
			break
		}
		data, err := upcast(e.Data)
		if err != nil {
			return Dead(fmt.Errorf("upcast %s from version %d: %w", e.Type, version, err))
		}
		e.Data = data
	}
	if version != schema.Version {
		return Park(fmt.Errorf("%w: %s %d, this program understands %d", waybill.ErrUnknownSchema, e.Type, max(e.SchemaVersion, 1), schema.Version))
	}
	e.SchemaVersion = version
	return c.validate(e)
}

func (c *Config) validate(e *waybill.Event) error {
	if c.Validator == nil {
		return nil
	}
	err := c.Validator.ValidateData(e)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, waybill.ErrUnknownSchema):
		// The sentinel comes first, so that the text can be told later.
		return Park(fmt.Errorf("%w: %w", waybill.ErrUnknownSchema, err))
	case errors.Is(err, waybill.ErrInvalidData):
		return Dead(err)
	}
	return err // a validator that cannot judge may be able to later
}

// fitted is the handler behind the schemas.
func fitted[TX any](c *Config, handler Handler[TX]) Handler[TX] {
	if !c.judges() {
		return handler
	}
	return func(ctx context.Context, tx TX, event waybill.Event) error {
		if err := c.fit(&event); err != nil {
			return err
		}
		return handler(ctx, tx, event)
	}
}

// fitEffects puts the schemas before what effects are given, too.
func (c *Config) fitEffects() {
	if !c.judges() {
		return
	}
	fit := *c
	c.Effects = slices.Clone(c.Effects) // the caller's own stay as they are
	for i := range c.Effects {
		call, key := c.Effects[i].Call, c.Effects[i].Key
		c.Effects[i].Call = func(ctx context.Context, idempotency string, event waybill.Event) ([]byte, error) {
			if err := fit.fit(&event); err != nil {
				return nil, NotDone(err)
			}
			return call(ctx, idempotency, event)
		}
		if key != nil {
			c.Effects[i].Key = func(event waybill.Event) string {
				fitting := event
				if fit.fit(&fitting) == nil {
					event = fitting
				}
				return key(event)
			}
		}
	}
}

// judges reports whether an event can be of a version that is unknown.
func (c *Config) judges() bool { return len(c.Schemas) > 0 || c.Validator != nil }

// heldUnknown reports whether a held event's last error is that its version was
// unknown.
func heldUnknown(lastErr string) bool {
	return strings.HasPrefix(lastErr, parkedText) && strings.Contains(lastErr, waybill.ErrUnknownSchema.Error())
}
