// Package jsonschema judges the data of events by JSON Schema: it is a
// [github.com/waybillhq/waybill.Validator] for the writer of an outbox and for a
// consumer.
//
// Schemas are files named "<type>.v<version>.json": OrderPaid.v1.json,
// OrderPaid.v2.json. A type without any file is not judged. A type with files,
// in a version without one, is unknown: an append is refused, a consumer holds
// the event until it knows better.
//
//	//go:embed schemas/*.json
//	var schemas embed.FS
//
//	validator, err := jsonschema.Load(schemas, "schemas")
//	...
//	writer := outbox.NewWriter(st, &outbox.Config{Validator: validator})
//
// Drafts 4 to 2020-12 are understood; a schema that names none is of 2020-12.
// References may lead to other files of the folder, never to the network.
package jsonschema
