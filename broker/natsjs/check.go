package natsjs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
)

// roomForMetadata is what headers and an envelope may add to an event's data.
const roomForMetadata = 64 << 10

// Check reports whether the server answers, and whether it keeps what it
// confirms, as far as a client can see that.
func (b *Broker) Check(ctx context.Context, topics []string) []broker.Check {
	ctx, done := b.ask(ctx, "$JS.API.INFO")
	defer done()
	if err := b.usable(); err != nil {
		return []broker.Check{{Name: "reachable", Detail: err.Error(), Hint: hintServer}}
	}
	account, err := b.js.AccountInfo(ctx)
	if err != nil {
		return []broker.Check{{Name: "reachable", Detail: classifyLookup(verdict(ctx, err)).Error(), Hint: hintServer}}
	}
	checks := []broker.Check{
		{Name: "reachable", OK: true, Detail: fmt.Sprintf("%s, version %s, %d streams",
			b.conn.ConnectedUrlRedacted(), b.conn.ConnectedServerVersion(), account.Streams)},
		b.checkPayload(),
	}
	for _, name := range topics {
		checks = append(checks, b.checkTopic(ctx, name))
	}
	return checks
}

func (b *Broker) checkPayload() broker.Check {
	limit := b.conn.MaxPayload()
	check := broker.Check{Name: "max_payload", OK: limit >= waybill.MaxDataBytes+roomForMetadata, Detail: fmt.Sprintf("%d bytes", limit)}
	if !check.OK {
		check.Hint = fmt.Sprintf("an event may have %d bytes of data: set max_payload to %d or more, or keep events smaller",
			waybill.MaxDataBytes, waybill.MaxDataBytes+roomForMetadata)
	}
	return check
}

func (b *Broker) checkTopic(ctx context.Context, name string) broker.Check {
	check := broker.Check{Name: "topic " + name}
	t, info, err := b.look(ctx, name)
	if err != nil {
		err = classifyLookup(err)
		check.Detail = err.Error()
		var classified *broker.Error
		if errors.As(err, &classified) {
			check.Hint = classified.Hint
		}
		return check
	}
	age := "for ever"
	if info.Config.MaxAge > 0 {
		age = "for " + info.Config.MaxAge.Round(time.Second).String()
	}
	check.Detail = fmt.Sprintf("%d partitions, %d records, kept %s, %d replicas", t.partitions, info.State.Msgs, age, info.Config.Replicas)
	switch {
	case info.Config.Storage != jetstream.FileStorage:
		check.Detail += ", in memory"
		check.Hint = "the stream does not survive its server: make it with file storage"
	case info.Config.Retention != jetstream.LimitsPolicy:
		check.Detail += ", retention by " + info.Config.Retention.String()
		check.Hint = "the stream drops what one group has read: make it with retention by limits"
	case info.Config.Discard == jetstream.DiscardOld && (info.Config.MaxBytes > 0 || info.Config.MaxMsgs > 0):
		check.Detail += ", drops the oldest when full"
		check.Hint = "records may be dropped unread: set discard to new"
	default:
		check.OK = true
		if info.Config.Replicas == 1 {
			check.Detail += "; what is confirmed survives a power failure only with sync_interval: always on the server"
		}
	}
	return check
}
