package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// partitions is the adapter's default of waybill.
const partitions = 12

func newProducer(url string) (*kgo.Client, error) {
	return kgo.NewClient(kgo.SeedBrokers(strings.TrimPrefix(url, "kafka://")), kgo.ClientID("peers"), kgo.ProducerBatchCompression(kgo.SnappyCompression()), kgo.MetadataMinAge(100*time.Millisecond))
}

// topics makes topics and looks into them, by the direct way to the broker.
type topics struct {
	client *kgo.Client
	admin  *kadm.Client
}

func newTopics(address string) (*topics, error) {
	client, err := newProducer(address)
	if err != nil {
		return nil, err
	}
	return &topics{client, kadm.NewClient(client)}, nil
}

func (t *topics) close() { t.client.Close() }

func newName(kind string) string {
	return "peers_" + strings.ReplaceAll(kind, " ", "_") + "_" + strings.ToLower(rand.Text()[:8])
}

func (t *topics) create(ctx context.Context, name string) error {
	_, err := t.admin.CreateTopic(ctx, partitions, 1, nil, name)
	return err
}

func (t *topics) remove(ctx context.Context, names ...string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	_, err := t.admin.DeleteTopics(ctx, names...)
	return err
}

// count returns how many records a topic has.
func (t *topics) count(ctx context.Context, name string) (int, error) {
	ends, err := t.admin.ListEndOffsets(ctx, name)
	if err != nil {
		return 0, err
	}
	total := 0
	ends.Each(func(o kadm.ListedOffset) {
		if o.Err != nil {
			err = o.Err
		}
		total += int(o.Offset)
	})
	return total, err
}

// await waits until a topic has so many records.
func (t *topics) await(ctx context.Context, name string, want int, patience time.Duration) error {
	for deadline := now().Add(patience); ; {
		got, err := t.count(ctx, name)
		switch {
		case err != nil:
			return err
		case got >= want:
			return nil
		case now().After(deadline):
			return fmt.Errorf("topic %s has %d records after %v, not %d", name, got, patience, want)
		case !pause(ctx, 5*time.Millisecond):
			return ctx.Err()
		}
	}
}
