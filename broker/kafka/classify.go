package kafka

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
)

const (
	hintCreateTopic = "create the topic first, with EnsureTopics or kafka-topics.sh"
	hintDenied      = "grant this client DESCRIBE, and WRITE or READ, on the topic"
	hintIdempotent  = "grant this client IDEMPOTENT_WRITE on the cluster"
	hintReplicas    = "bring the replicas back: fewer are in sync than min.insync.replicas asks for"
	hintLeader      = "look at the brokers that hold the partition's replicas"
)

var (
	topicErrors = map[error]string{
		kerr.UnknownTopicOrPartition:  hintCreateTopic,
		kerr.UnknownTopicID:           hintCreateTopic,
		kerr.InconsistentTopicID:      hintCreateTopic,
		kerr.InvalidTopicException:    "the cluster does not accept this name of a topic",
		kerr.TopicAuthorizationFailed: hintDenied,
	}
	partitionErrors = map[error]string{
		kerr.LeaderNotAvailable:    hintLeader,
		kerr.NotLeaderForPartition: hintLeader,
		kerr.ReplicaNotAvailable:   hintLeader,
		kerr.FencedLeaderEpoch:     hintLeader,
		kerr.UnknownLeaderEpoch:    hintLeader,
		kerr.NotEnoughReplicas:     hintReplicas,
		kerr.KafkaStorageError:     "the broker cannot write to its disk",
		kerr.ListenerNotFound:      "the partition's leader does not listen where this client connects",
	}
	brokerErrors = map[error]string{
		kerr.ClusterAuthorizationFailed:         hintIdempotent,
		kerr.TransactionalIDAuthorizationFailed: hintIdempotent,
		kerr.SaslAuthenticationFailed:           "look at user, password and mechanism",
		kerr.UnsupportedSaslMechanism:           "use a mechanism that the cluster offers",
		kerr.IllegalSaslState:                   "this listener wants SASL, or none",
		kerr.BrokerNotAvailable:                 hintBroker,
		kerr.CoordinatorNotAvailable:            hintBroker,
		kerr.CoordinatorLoadInProgress:          hintBroker,
		kerr.NotCoordinator:                     hintBroker,
		kerr.NotController:                      hintBroker,
		kerr.ThrottlingQuotaExceeded:            "raise this client's quota",
		kerr.GroupAuthorizationFailed:           "grant this client READ on the group",
		kerr.UnsupportedVersion:                 "use Kafka 2.1 or later",
	}
	// noAnswers say that a record may have been stored, or not.
	noAnswers = []error{
		kerr.RequestTimedOut, kerr.NotEnoughReplicasAfterAppend, kerr.NetworkException,
		// The library ends the producer's epoch and sends again; the last answer says
		// nothing of the first attempt.
		kerr.OutOfOrderSequenceNumber, kerr.UnknownProducerID, kerr.InvalidProducerEpoch, kerr.InvalidProducerIDMapping,
	}
	tooLarges = []error{kerr.MessageTooLarge, kerr.RecordListTooLarge}
	// permanents say that no retry helps a record that was alone in its batch.
	permanents = []error{
		kerr.MessageTooLarge, kerr.RecordListTooLarge, kerr.InvalidRecord, kerr.InvalidTimestamp,
		kerr.UnsupportedForMessageFormat,
	}
)

// scoped returns what is unavailable according to an answer of the cluster, or
// nil when it speaks of something else.
func scoped(err error) error {
	var kafka *kerr.Error
	if !errors.As(err, &kafka) {
		return nil
	}
	if hint, ok := topicErrors[kafka]; ok {
		return broker.Unavailable(broker.ScopeTopic, err, hint)
	}
	if hint, ok := partitionErrors[kafka]; ok {
		return broker.Unavailable(broker.ScopePartition, err, hint)
	}
	if hint, ok := brokerErrors[kafka]; ok {
		return broker.Unavailable(broker.ScopeBroker, err, hint)
	}
	return nil
}

// refusal reports whether the cluster has refused the batch that a record was
// in, so that one of its records is to blame and none was stored.
func refusal(err error) bool {
	var kafka *kerr.Error
	return errors.As(err, &kafka) && !matches(err, noAnswers) && scoped(err) == nil
}

func matches(err error, wanted []error) bool {
	for _, one := range wanted {
		if errors.Is(err, one) {
			return true
		}
	}
	return false
}

func deniedError(err error) bool {
	return matches(err, []error{kerr.TopicAuthorizationFailed, kerr.ClusterAuthorizationFailed})
}

// classify says what a record's failure means. sent tells whether it may have
// left this process.
func (b *Broker) classify(err error, record *waybill.Record, sent bool) error {
	at := fmt.Errorf("topic %s: %w", record.Topic, err)
	if unavailable := scoped(at); unavailable != nil && !matches(err, noAnswers) {
		return unavailable
	}
	var lost lostConnection
	switch {
	case matches(err, tooLarges):
		return tooLarge(record, recordSize(record), int(b.limits.batch(record.Topic)))
	case matches(err, permanents):
		return broker.Permanent(fmt.Errorf("record %s: %w", record.EventID, at), "")
	case errors.Is(err, kerr.UnknownServerError): // it may have failed after it stored the record
		return broker.Unknown(at)
	case refusal(err):
		return broker.Retryable(fmt.Errorf("record %s: %w", record.EventID, at))
	case sent || matches(err, noAnswers):
		return broker.Unknown(fmt.Errorf("no answer: %w", at))
	case errors.As(err, &lost):
		return noConnection(lost.error)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errors.Is(err, kgo.ErrRecordTimeout):
		return broker.Unknown(at)
	}
	return broker.Unavailable(broker.ScopeBroker, at, hintBroker)
}

// classifyRequest says what the failure of a question to the cluster means.
func (l *link) classifyRequest(err error) error {
	var classified *broker.Error
	switch unavailable := scoped(err); {
	case errors.As(err, &classified):
		return err
	case unavailable != nil:
		return unavailable
	case errors.Is(err, kgo.ErrClientClosed):
		return broker.Unavailable(broker.ScopeBroker, errClosed, "")
	case l.trouble() != nil:
		return broker.Unavailable(broker.ScopeBroker, err, hintBroker)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return broker.Unknown(err)
	}
	return err
}

func tooLarge(record *waybill.Record, size, limit int) error {
	return broker.Permanent(fmt.Errorf("record %s is too large: %d bytes, limit %d", record.EventID, size, limit),
		"raise max.message.bytes of the topic and MaxRecordBytes here, or send less")
}
