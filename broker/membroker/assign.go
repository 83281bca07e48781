package membroker

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
)

// Unshared returns a subscriber on the same broker whose subscriptions
// implement [broker.Assigner]: the caller says who reads what, as with brokers
// that do not share partitions themselves.
func (b *Broker) Unshared() broker.Subscriber { return unshared{b} }

type unshared struct{ *Broker }

func (u unshared) Subscribe(ctx context.Context, request broker.SubscribeRequest) (broker.Subscription, error) {
	sub, err := u.subscribe(ctx, request)
	if err != nil {
		return nil, err
	}
	return &assigned{sub}, nil
}

// assigned reads what it is told to read. Nothing keeps two members from
// reading one partition.
type assigned struct{ *subscription }

func (a *assigned) Poll(ctx context.Context, limit int, wait time.Duration) ([]broker.Delivery, error) {
	return a.poll(ctx, limit, wait, func() {})
}

func (a *assigned) Commit(ctx context.Context, positions []broker.Position) error {
	return a.commit(ctx, positions, func(p broker.Partition) error {
		if !slices.Contains(a.topics, p.Topic) {
			return errors.New("the topic is not subscribed")
		}
		return nil
	})
}

func (a *assigned) Partitions(ctx context.Context) ([]broker.Partition, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	b := a.client
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := a.usable(); err != nil {
		return nil, &waybill.Error{Op: "list partitions", Key: a.name, Err: err}
	}
	return a.all(), nil
}

func (a *assigned) Assign(ctx context.Context, partitions []broker.Partition) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	b := a.client
	b.mu.Lock()
	defer b.mu.Unlock()
	fail := func(err error) error { return &waybill.Error{Op: "assign", Key: a.name, Err: err} }
	if err := a.usable(); err != nil {
		return fail(err)
	}
	all := a.all()
	for _, p := range partitions {
		if !slices.Contains(all, p) {
			return fail(errors.New("no such partition"))
		}
	}
	for p := range a.owned {
		if !slices.Contains(partitions, p) {
			delete(a.owned, p)
		}
	}
	for _, p := range partitions {
		if _, reading := a.owned[p]; !reading {
			a.owned[p] = a.group.next(p)
		}
	}
	b.notify()
	return nil
}

func (a *assigned) all() []broker.Partition {
	var all []broker.Partition
	for _, name := range a.topics {
		for id := range a.client.topics[name].partitions {
			all = append(all, broker.Partition{Topic: name, ID: int32(id)})
		}
	}
	return all
}
