package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
)

// topicMoved are answers that come when a topic of the same name is not the one
// that the library knows.
var topicMoved = []error{kerr.UnknownTopicID, kerr.InconsistentTopicID, kerr.UnknownTopicOrPartition}

// EnsureTopics makes the topics that do not exist, and waits until they have
// leaders.
func (b *Broker) EnsureTopics(ctx context.Context, topics []broker.TopicSpec) error {
	var errs []error
	for _, spec := range topics {
		if err := b.ensure(ctx, spec); err != nil {
			errs = append(errs, &waybill.Error{Op: "ensure topic", Key: spec.Name, Err: err})
		}
	}
	return errors.Join(errs...)
}

func (b *Broker) ensure(ctx context.Context, spec broker.TopicSpec) error {
	switch {
	case !waybill.ValidTopic(spec.Name):
		return errors.New("illegal name")
	case spec.Partitions < 0:
		return fmt.Errorf("%d partitions: use 1 or more", spec.Partitions)
	}
	if err := b.usable(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 3*requestTimeout)
	defer cancel()
	have, err := b.look(ctx, spec.Name)
	if errors.Is(err, kerr.UnknownTopicOrPartition) {
		if err = b.create(ctx, spec); err == nil || errors.Is(err, kerr.TopicAlreadyExists) { // another process was faster
			have, err = b.awaitTopic(ctx, spec.Name)
		}
	}
	switch {
	case err != nil:
		return b.link.classifyRequest(err)
	case spec.Partitions != 0 && len(have.Partitions) != spec.Partitions:
		return fmt.Errorf("it has %d partitions, not %d", len(have.Partitions), spec.Partitions)
	}
	return nil
}

func (b *Broker) create(ctx context.Context, spec broker.TopicSpec) error {
	partitions, replicas := spec.Partitions, b.config.Replicas
	if partitions == 0 {
		partitions = b.config.Partitions
	}
	// The broker's own clock says when it stored a record.
	settings := map[string]string{"message.timestamp.type": "LogAppendTime"}
	if replicas >= 3 {
		settings["min.insync.replicas"] = "2"
	}
	if replicas == 0 {
		replicas = -1
	}
	maps.Copy(settings, b.config.TopicConfig)
	configs := make(map[string]*string, len(settings))
	for name, value := range settings {
		configs[name] = kadm.StringPtr(value)
	}
	response, err := b.admin.CreateTopic(ctx, int32(partitions), int16(replicas), configs, spec.Name)
	if err != nil && response.ErrMessage != "" {
		return fmt.Errorf("%w: %s", err, response.ErrMessage)
	}
	return err
}

// awaitTopic waits until all partitions of a new topic have a leader.
func (b *Broker) awaitTopic(ctx context.Context, name string) (kadm.TopicDetail, error) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		detail, err := b.look(ctx, name)
		if err == nil {
			if err = leaders(detail); err == nil {
				return detail, nil
			}
		}
		if scoped(err) == nil {
			return detail, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return detail, err
		}
	}
}

func leaders(detail kadm.TopicDetail) error {
	for _, p := range detail.Partitions {
		if p.Err != nil {
			return p.Err
		}
		if p.Leader < 0 {
			return kerr.LeaderNotAvailable
		}
	}
	return nil
}

// look asks the cluster about a topic.
func (b *Broker) look(ctx context.Context, name string) (kadm.TopicDetail, error) {
	details, err := b.admin.ListTopicsWithInternal(ctx, name)
	if err != nil {
		return kadm.TopicDetail{}, err
	}
	detail, ok := details[name]
	switch {
	case !ok:
		return detail, kerr.UnknownTopicOrPartition
	case detail.Err != nil:
		return detail, detail.Err
	}
	return detail, nil
}

func textConfig(config kadm.ResourceConfig, name string) (string, bool) {
	for _, c := range config.Configs {
		if c.Key == name && c.Value != nil {
			return *c.Value, true
		}
	}
	return "", false
}

func intConfig(config kadm.ResourceConfig, name string) (int, bool) {
	text, ok := textConfig(config, name)
	if !ok {
		return 0, false
	}
	n, err := strconv.Atoi(text)
	return n, err == nil
}
