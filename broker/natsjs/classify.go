package natsjs

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
)

// Codes of the server that the client library has no names for.
const (
	codeAccountResources jetstream.ErrorCode = 10002
	codeNotLeader        jetstream.ErrorCode = 10009
	codeNoPeers          jetstream.ErrorCode = 10008
	codeResources        jetstream.ErrorCode = 10023
	codeMemory           jetstream.ErrorCode = 10028
	codeStorage          jetstream.ErrorCode = 10047
	codeStoreFailed      jetstream.ErrorCode = 10077 // also: the stream is full
	codeHeaderTooLarge   jetstream.ErrorCode = 10097
	codeSealed           jetstream.ErrorCode = 10109
)

const (
	hintForeignStream = "remove or rename the stream, then create the topic"
	hintDenied        = "grant this client the right to publish"
)

var (
	errForeignStream = errors.New("its metadata lacks the topic or the number of partitions")
	errDuplicate     = errors.New("the server took the record for a duplicate and did not store it")
	errDenied        = errors.New("publishing to the topic is not permitted")
)

// classifySend says what it means that a record could not be sent, or that the
// server answered its sending with an error.
func classifySend(err error, record *waybill.Record) error {
	err = fmt.Errorf("topic %s: %w", record.Topic, err)
	var api *jetstream.APIError
	switch {
	case errors.Is(err, nats.ErrDisconnected), errors.Is(err, jetstream.ErrAsyncPublishTimeout):
		return broker.Unknown(err) // it was on its way
	case errors.Is(err, nats.ErrBadHeaderMsg): // it never left: no header line can be made of one of its names
		return broker.Permanent(fmt.Errorf("record %s: %w", record.EventID, err), "names of headers are visible ASCII, and not empty")
	case errors.Is(err, jetstream.ErrNoStreamResponse), errors.Is(err, jetstream.ErrStreamNotFound):
		return broker.Unavailable(broker.ScopeTopic, err, hintCreateTopic)
	case errors.As(err, &api):
		return classifyAnswer(err, api, record)
	}
	return classifyLookup(err)
}

func classifyAnswer(err error, api *jetstream.APIError, record *waybill.Record) error {
	switch api.ErrorCode {
	case jetstream.JSErrCodeStreamMessageExceedsMaximum, codeHeaderTooLarge:
		return broker.Permanent(fmt.Errorf("record %s is too large: %d bytes of value: %w", record.EventID, len(record.Value), err), "")
	case codeStorage, codeStoreFailed, codeResources, codeMemory, codeAccountResources:
		return broker.Unavailable(broker.ScopeTopic, err, "the stream or its storage is full: raise the limit or make room")
	case codeSealed:
		return broker.Unavailable(broker.ScopeTopic, err, "the stream is sealed")
	}
	// Whatever else the server has against a stream is no fault of the record.
	return broker.Unavailable(broker.ScopeTopic, err, "")
}

// classifyLookup says what it means that a topic's stream cannot be used.
func classifyLookup(err error) error {
	switch {
	case errors.Is(err, errForeignStream):
		return broker.Unavailable(broker.ScopeTopic, err, hintForeignStream)
	case errors.Is(err, errDenied):
		return broker.Unavailable(broker.ScopeTopic, err, hintDenied)
	case errors.Is(err, errDisconnected):
		return broker.Unavailable(broker.ScopeBroker, err, hintServer)
	}
	return classifyRequest(err)
}

// classifyRequest says what the failure of a question to the server means.
func classifyRequest(err error) error {
	var api *jetstream.APIError
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout):
		return broker.Unknown(err)
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return broker.Unavailable(broker.ScopeTopic, err, hintCreateTopic)
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount), errors.Is(err, nats.ErrNoResponders):
		return broker.Unavailable(broker.ScopeBroker, err, "switch JetStream on in the server, for this account")
	case errors.As(err, &api):
		if api.ErrorCode == codeNotLeader || api.ErrorCode == codeNoPeers || api.Code >= 500 {
			return broker.Unavailable(broker.ScopeBroker, err, "")
		}
		return broker.Unavailable(broker.ScopeTopic, err, "")
	}
	// What is left are states of the connection: closed, reconnecting, its buffer
	// full, no rights.
	return broker.Unavailable(broker.ScopeBroker, err, hintServer)
}

func tooLarge(record *waybill.Record, size int, limit int64, hint string) error {
	return broker.Permanent(fmt.Errorf("record %s is too large: %d bytes, limit %d", record.EventID, size, limit), hint)
}

// isTooLarge reports whether the stream itself refused the size of a message.
func isTooLarge(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && api.ErrorCode == jetstream.JSErrCodeStreamMessageExceedsMaximum
}
