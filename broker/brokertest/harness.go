package brokertest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
)

// patience bounds whatever should happen soon. It is long, because it only
// matters when something is broken or the machine is busy.
const patience = 90 * time.Second

// quiet is how long the suite listens for what should not come.
const quiet = 200 * time.Millisecond

// Client is one process's connections to a broker.
type Client struct {
	Publisher  broker.Publisher
	Subscriber broker.Subscriber
	Admin      broker.TopicAdmin
	// Checker may be nil.
	Checker broker.Checker
	// Close ends what the other fields share. May be nil when closing Publisher
	// and Subscriber is all there is to do.
	Close func() error
}

// Harness tells the suite how to reach one running server, which keeps its
// topics for the whole of the suite.
type Harness struct {
	// Open connects a new client. The suite closes it.
	Open func(t testing.TB) Client
	// TooLarge is the size of a value that the server refuses. 0 skips what
	// needs one.
	TooLarge int
	// Stop makes the server unreachable, at once for new calls; Start brings it
	// back at the same address with all that it had confirmed. Either nil skips
	// the outage.
	Stop, Start func(t testing.TB)
	// Freeze makes the server accept calls and answer none, until the returned
	// function is called. nil skips what needs it.
	Freeze func(t testing.TB) (thaw func())
	// DotIsUnderscore says that the server takes names that differ only in '.' and
	// '_' for one, and refuses the second: Kafka does, because its metrics write
	// both as '_'.
	DotIsUnderscore bool
	// ServerPackages are import paths whose goroutines are a server's that runs in
	// this process, and so no leak of the adapter.
	ServerPackages []string
}

// Run proves an adapter.
func Run(t *testing.T, h Harness) {
	before := len(goroutines(h.ServerPackages))
	t.Run("suite", func(t *testing.T) {
		s := &suite{h}
		t.Run("publish", s.publish)
		t.Run("topics", s.topics)
		t.Run("consume", s.consume)
		t.Run("assign", s.assign)
		t.Run("share", s.share)
		t.Run("freeze", s.freeze)
		t.Run("outage", s.outage)
	})
	noLeak(t, before, h.ServerPackages)
}

type suite struct{ Harness }

func (s *suite) open(t testing.TB) Client {
	t.Helper()
	c := s.Open(t)
	t.Cleanup(func() {
		if err := c.close(); err != nil {
			t.Errorf("close the client: %v", err)
		}
	})
	return c
}

func (c Client) close() error {
	err := errors.Join(c.Publisher.Close(), c.Subscriber.Close())
	if c.Close != nil {
		err = errors.Join(err, c.Close())
	}
	return err
}

var topics atomic.Int64

// topic makes a new topic with a name that has every kind of legal character.
func (s *suite) topic(t testing.TB, c Client, partitions int) string {
	t.Helper()
	name := topicName()
	if err := c.Admin.EnsureTopics(t.Context(), []broker.TopicSpec{{Name: name, Partitions: partitions}}); err != nil {
		t.Fatalf("create topic %s: %v", name, err)
	}
	return name
}

func topicName() string {
	return fmt.Sprintf("Suite.topic_%d-x.%s", topics.Add(1), waybill.NewID())
}

func groupName() string { return "group-" + waybill.NewID() }

func record(topic, key, id string) waybill.Record {
	return waybill.Record{
		EventID: id, Topic: topic, Key: key, Value: []byte("value of " + id),
		Headers: []waybill.Header{{Key: "id", Value: []byte(id)}},
	}
}

// records makes n records, one key each.
func records(topic string, n int) []waybill.Record {
	out := make([]waybill.Record, n)
	for i := range out {
		out[i] = record(topic, fmt.Sprintf("key-%d", i), fmt.Sprintf("event-%d", i))
	}
	return out
}

func publish(t testing.TB, p broker.Publisher, records ...waybill.Record) {
	t.Helper()
	for i, err := range tryPublish(t, p, records...) {
		if err != nil {
			t.Fatalf("publish %s: %v", records[i].EventID, err)
		}
	}
}

func tryPublish(t testing.TB, p broker.Publisher, records ...waybill.Record) []error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	errs := p.Publish(ctx, records)
	if len(errs) != len(records) {
		t.Fatalf("got %d answers to %d records", len(errs), len(records))
	}
	return errs
}

// wantClasses compares answers, each written as "ok", a class, or for
// Unavailable the scope and the class.
func wantClasses(t testing.TB, errs []error, want ...string) {
	t.Helper()
	if got := classes(errs); !reflect.DeepEqual(got, want) {
		t.Errorf("got answers %v, want %v (%v)", got, want, errs)
	}
}

func classes(errs []error) []string {
	out := make([]string, len(errs))
	for i, err := range errs {
		switch class, scope := broker.Classify(err); {
		case err == nil:
			out[i] = "ok"
		case class == broker.ClassUnavailable:
			out[i] = scope.String() + " " + class.String()
		default:
			out[i] = class.String()
		}
	}
	return out
}

// subscribe joins a group and reads all partitions, whoever assigns them.
func subscribe(t testing.TB, c Client, group string, topics ...string) broker.Subscription {
	t.Helper()
	sub := join(t, c, group, topics...)
	if a, ok := sub.(broker.Assigner); ok {
		all, err := a.Partitions(t.Context())
		if err != nil {
			t.Fatalf("list partitions: %v", err)
		}
		if err := a.Assign(t.Context(), all); err != nil {
			t.Fatalf("assign: %v", err)
		}
	}
	return sub
}

func join(t testing.TB, c Client, group string, topics ...string) broker.Subscription {
	t.Helper()
	sub, err := c.Subscriber.Subscribe(t.Context(), broker.SubscribeRequest{Group: group, Topics: topics})
	if err != nil {
		t.Fatalf("subscribe: %v", err)
	}
	t.Cleanup(func() { _ = sub.Close() })
	return sub
}

// read polls until it has n deliveries, and fails the test when they do not
// come or come wrongly.
func read(t testing.TB, sub broker.Subscription, n int) []broker.Delivery {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var all []broker.Delivery
	for len(all) < n {
		batch, err := sub.Poll(ctx, n-len(all), time.Second)
		if err != nil {
			t.Fatalf("poll after %d of %d deliveries: %v", len(all), n, err)
		}
		if len(batch) > n-len(all) {
			t.Fatalf("poll returned %d deliveries, limit %d", len(batch), n-len(all))
		}
		all = append(all, batch...)
	}
	inOrder(t, all)
	return all
}

// readNothing fails the test when anything comes within a short time.
func readNothing(t testing.TB, sub broker.Subscription) {
	t.Helper()
	batch, err := sub.Poll(t.Context(), 100, quiet)
	if err != nil {
		t.Fatalf("poll: %v", err)
	}
	if len(batch) > 0 {
		t.Errorf("got %d deliveries that should not come: %v", len(batch), ids(batch))
	}
}

// inOrder checks that positions grow within each partition.
func inOrder(t testing.TB, all []broker.Delivery) {
	t.Helper()
	last := make(map[broker.Partition]int64)
	for _, d := range all {
		p := partitionOf(d)
		if at, seen := last[p]; seen && d.Position <= at {
			t.Errorf("%s/%d: position %d comes after %d", p.Topic, p.ID, d.Position, at)
		}
		last[p] = d.Position
	}
}

func partitionOf(d broker.Delivery) broker.Partition {
	return broker.Partition{Topic: d.Record.Topic, ID: d.Partition}
}

func commit(t testing.TB, sub broker.Subscription, upTo ...broker.Delivery) {
	t.Helper()
	greatest := make(map[broker.Partition]int64)
	for _, d := range upTo {
		greatest[partitionOf(d)] = d.Position
	}
	var positions []broker.Position
	for p, at := range greatest {
		positions = append(positions, broker.Position{Partition: p, Settled: at})
	}
	if err := sub.Commit(t.Context(), positions); err != nil {
		t.Fatalf("commit: %v", err)
	}
}

func ids(all []broker.Delivery) []string {
	out := make([]string, len(all))
	for i, d := range all {
		out[i] = d.Record.EventID
	}
	return out
}

// wantIDs compares event ids, whatever their order.
func wantIDs(t testing.TB, all []broker.Delivery, want ...string) {
	t.Helper()
	got, want := slices.Clone(ids(all)), slices.Clone(want)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got events %v, want %v", got, want)
	}
}

func eventIDs(records []waybill.Record) []string {
	out := make([]string, len(records))
	for i := range records {
		out[i] = records[i].EventID
	}
	return out
}

// within fails the test when f has not returned after patience.
func within(t testing.TB, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		t.Fatalf("%s did not return", what)
	}
}
