package kafka

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
)

// roomForMetadata is what headers and an envelope may add to an event's data.
const roomForMetadata = 64 << 10

// Check reports whether the cluster answers, and whether its settings keep what
// it confirms.
func (b *Broker) Check(ctx context.Context, topics []string) []broker.Check {
	if err := b.usable(ctx); err != nil {
		return []broker.Check{{Name: "reachable", Detail: err.Error(), Hint: hintBroker}}
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	cluster, err := b.admin.BrokerMetadata(ctx)
	if err != nil {
		return []broker.Check{{Name: "reachable", Detail: b.link.classifyRequest(err).Error(), Hint: hintBroker}}
	}
	checks := []broker.Check{
		{Name: "reachable", OK: true, Detail: fmt.Sprintf("cluster %s, %d brokers", cluster.Cluster, len(cluster.Brokers))},
		{Name: "acks", OK: true, Detail: "all, with an idempotent producer"},
	}
	for _, name := range topics {
		checks = append(checks, b.checkTopic(ctx, name)...)
	}
	return checks
}

func (b *Broker) checkTopic(ctx context.Context, name string) []broker.Check {
	exists := broker.Check{Name: "topic " + name}
	detail, err := b.look(ctx, name)
	if err != nil {
		err = b.link.classifyRequest(err)
		exists.Detail = "topic " + name + ": " + err.Error()
		exists.Hint = hintBroker
		var classified *broker.Error
		if errors.As(err, &classified) && classified.Hint != "" {
			exists.Hint = classified.Hint
		}
		return []broker.Check{exists}
	}
	replicas := fewestReplicas(detail)
	exists.Detail = fmt.Sprintf("%d partitions, %d replicas", len(detail.Partitions), replicas)
	exists.OK = true
	if first := b.counts.see(name, len(detail.Partitions)); first != len(detail.Partitions) {
		exists.OK = false
		exists.Detail += fmt.Sprintf("; it had %d partitions when this process began", first)
		exists.Hint = "keys change their partitions when this process starts again: let consumers catch up before"
	} else if err := leaders(detail); err != nil {
		exists.OK = false
		exists.Detail += "; " + err.Error()
		exists.Hint = hintLeader
	}
	checks := append([]broker.Check{exists}, b.checkSettings(ctx, name, replicas)...)
	return append(checks, b.checkPositions(ctx, name, len(detail.Partitions))...)
}

func (b *Broker) checkSettings(ctx context.Context, name string, replicas int) []broker.Check {
	configs, err := b.admin.DescribeTopicConfigs(ctx, name)
	var config kadm.ResourceConfig
	if err == nil {
		config, err = configs.On(name, nil)
	}
	if err == nil {
		err = config.Err
	}
	if err != nil {
		return []broker.Check{{
			Name: "settings of " + name, Detail: "unknown, because " + err.Error(),
			Hint: "grant this client DESCRIBE_CONFIGS on the topic, or look yourself at min.insync.replicas and unclean.leader.election.enable",
		}}
	}
	var checks []broker.Check
	if insync, ok := intConfig(config, "min.insync.replicas"); ok {
		checks = append(checks, checkReplicas(name, replicas, insync))
	}
	if unclean, ok := textConfig(config, "unclean.leader.election.enable"); ok {
		check := broker.Check{Name: "unclean.leader.election.enable of " + name, OK: unclean == "false", Detail: unclean}
		if !check.OK {
			check.Hint = "a replica that lags may become leader, and what it lacks is lost: set it to false"
		}
		checks = append(checks, check)
	}
	if limit, ok := intConfig(config, "max.message.bytes"); ok {
		limit = min(limit, b.config.MaxRecordBytes)
		check := broker.Check{Name: "max.message.bytes of " + name, OK: true, Detail: fmt.Sprintf("%d, with this client's own limit", limit)}
		if limit < waybill.MaxDataBytes+roomForMetadata {
			check.Detail += fmt.Sprintf("; an event with the full %d bytes of data does not fit and would become DEAD", waybill.MaxDataBytes)
		}
		checks = append(checks, check)
	}
	if policy, ok := textConfig(config, "cleanup.policy"); ok {
		check := broker.Check{Name: "cleanup.policy of " + name, OK: !strings.Contains(policy, "compact"), Detail: policy}
		if !check.OK {
			check.Hint = "compaction drops older events of a key, also unread ones: set it to delete"
		}
		checks = append(checks, check)
	}
	return checks
}

func checkReplicas(name string, replicas, insync int) broker.Check {
	check := broker.Check{Name: "min.insync.replicas of " + name, Detail: fmt.Sprintf("%d of %d replicas", insync, replicas)}
	switch {
	case replicas == 1:
		check.Hint = "what is confirmed is lost with the one broker that has it: use 3 replicas and min.insync.replicas=2"
	case insync >= replicas:
		check.Hint = "one broker that is away stops publishing: use fewer than there are replicas"
	case insync < 2:
		check.Hint = "what is confirmed may be on one broker alone: set it to 2"
	default:
		check.OK = true
	}
	return check
}

func fewestReplicas(detail kadm.TopicDetail) int {
	fewest := 0
	for _, p := range detail.Partitions {
		if n := len(p.Replicas); fewest == 0 || n < fewest {
			fewest = n
		}
	}
	return fewest
}
