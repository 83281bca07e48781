// Package schema compares two versions of a JSON Schema, and tells what of the
// change breaks somebody: a consumer written for the old one that gets new data,
// or the old data itself, which replay and slow consumers still bring.
//
// A change that breaks is not forbidden; it needs a new schema version of the
// event and an upcast at its consumers: see
// [github.com/waybillhq/waybill/inbox.Schema].
//
// Package jsonschema, a module of its own, judges data.
package schema
