package natsjs_test

import (
	"context"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
	"github.com/waybillhq/waybill/broker/natsjs"
)

const patience = 90 * time.Second

func record(topic, key, id string) waybill.Record {
	return waybill.Record{EventID: id, Topic: topic, Key: key, Value: []byte(id)}
}

func ensure(t testing.TB, b *natsjs.Broker, specs ...broker.TopicSpec) {
	t.Helper()
	if err := b.EnsureTopics(t.Context(), specs); err != nil {
		t.Fatal(err)
	}
}

func try(t testing.TB, b *natsjs.Broker, records ...waybill.Record) []error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return b.Publish(ctx, records)
}

func publish(t testing.TB, b *natsjs.Broker, records ...waybill.Record) {
	t.Helper()
	for i, err := range try(t, b, records...) {
		if err != nil {
			t.Fatalf("publish %s: %v", records[i].EventID, err)
		}
	}
}

func subscribe(t testing.TB, b *natsjs.Broker, group, topic string) broker.Subscription {
	t.Helper()
	sub, err := b.Subscribe(t.Context(), broker.SubscribeRequest{Group: group, Topics: []string{topic}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sub.Close() })
	assignAll(t, sub)
	return sub
}

func assignAll(t testing.TB, sub broker.Subscription) {
	t.Helper()
	a := sub.(broker.Assigner)
	all, err := a.Partitions(t.Context())
	if err == nil {
		err = a.Assign(t.Context(), all)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func poll(t testing.TB, sub broker.Subscription, n int) []broker.Delivery {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var all []broker.Delivery
	for len(all) < n {
		batch, err := sub.Poll(ctx, n-len(all), time.Second)
		if ctx.Err() != nil {
			t.Fatalf("got %d of %d deliveries, last error %v", len(all), n, err)
		}
		all = append(all, batch...)
	}
	return all
}

func wantClasses(t testing.TB, errs []error, want ...string) {
	t.Helper()
	got := make([]string, len(errs))
	for i, err := range errs {
		switch class, scope := broker.Classify(err); {
		case err == nil:
			got[i] = "ok"
		case class == broker.ClassUnavailable:
			got[i] = scope.String() + " " + class.String()
		default:
			got[i] = class.String()
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got answers %v, want %v (%v)", got, want, errs)
	}
}

// admin is a client as an operator would use it.
func admin(t testing.TB, url string) jetstream.JetStream {
	t.Helper()
	conn, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// streamOf returns the name and the configuration of a topic's stream.
func streamOf(t testing.TB, js jetstream.JetStream, topic string) jetstream.StreamConfig {
	t.Helper()
	stream, err := js.Stream(t.Context(), "waybill-"+natsjs.Token(topic))
	if err != nil {
		t.Fatal(err)
	}
	return stream.CachedInfo().Config
}

func TestARecordThatTheServerRefusesStopsItsKeyOnly(t *testing.T) {
	s := startServer(t)
	b := open(t, s.ClientURL(), nil)
	ensure(t, b, broker.TopicSpec{Name: "orders", Partitions: 1})
	js := admin(t, s.ClientURL())
	config := streamOf(t, js, "orders")
	config.MaxMsgSize = 1000
	if _, err := js.UpdateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	batch := []waybill.Record{
		record("orders", "a", "a1"), record("orders", "a", "a2"), record("orders", "b", "b1"),
		record("orders", "a", "a3"), record("orders", "a", "a4"), record("orders", "b", "b2"),
	}
	batch[1].Value = make([]byte, 2000)
	errs := try(t, b, batch...)
	wantClasses(t, errs, "ok", "permanent", "ok", "predecessor", "predecessor", "ok")
	if text := errs[1].Error(); !strings.Contains(text, "a2") || !strings.Contains(text, "limit 1000") {
		t.Errorf("the error %q should name the event and the limit", text)
	}
	var ids []string
	for _, d := range poll(t, subscribe(t, b, "g", "orders"), 3) {
		ids = append(ids, d.Record.EventID)
	}
	if want := []string{"a1", "b1", "b2"}; !reflect.DeepEqual(ids, want) {
		t.Errorf("the stream holds %v, want %v", ids, want)
	}
}

// Such a name comes from a foreign record of which a dead letter is made. It says
// nothing of the server, and must not stop what else is sent to it.
func TestAHeaderThatCannotBeSentIsTheRecordsOwnFault(t *testing.T) {
	b := open(t, startServer(t).ClientURL(), nil)
	ensure(t, b, broker.TopicSpec{Name: "orders", Partitions: 1})
	batch := []waybill.Record{record("orders", "a", "a1"), record("orders", "b", "b1")}
	batch[0].Headers = append(batch[0].Headers, waybill.Header{Key: "", Value: []byte("x")})
	wantClasses(t, try(t, b, batch...), "permanent", "ok")
}

func TestAFullStreamIsUnavailableUntilThereIsRoom(t *testing.T) {
	s := startServer(t)
	b := open(t, s.ClientURL(), &natsjs.Config{MaxBytes: 20_000})
	ensure(t, b, broker.TopicSpec{Name: "full"})
	big := record("full", "k", "1")
	big.Value = make([]byte, 5000)
	var errs []error
	for range 10 {
		if errs = try(t, b, big); errs[0] != nil {
			break
		}
	}
	wantClasses(t, errs, "topic unavailable")
	stream, err := admin(t, s.ClientURL()).Stream(t.Context(), "waybill-full")
	if err == nil {
		err = stream.Purge(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	publish(t, b, big)
}

func TestAStreamMadeAnewIsReadFromItsStart(t *testing.T) {
	s := startServer(t)
	b := open(t, s.ClientURL(), nil)
	ensure(t, b, broker.TopicSpec{Name: "orders", Partitions: 2})
	publish(t, b, record("orders", "a", "old-1"), record("orders", "a", "old-2"))
	sub := subscribe(t, b, "g", "orders")
	old := poll(t, sub, 2)
	if err := sub.Commit(t.Context(), []broker.Position{{Partition: broker.Partition{Topic: "orders", ID: old[1].Partition}, Settled: old[1].Position}}); err != nil {
		t.Fatal(err)
	}
	js := admin(t, s.ClientURL())
	if err := js.DeleteStream(t.Context(), "waybill-orders"); err != nil {
		t.Fatal(err)
	}
	wantClasses(t, try(t, b, record("orders", "a", "lost")), "topic unavailable")
	ensure(t, b, broker.TopicSpec{Name: "orders", Partitions: 2})
	// More than the former stream had: the position is not beyond the end.
	publish(t, b, record("orders", "a", "new-1"), record("orders", "a", "new-2"), record("orders", "a", "new-3"))
	// The subscription that was there all the time, and one that starts with the
	// position of the former stream.
	if got := poll(t, sub, 1)[0]; got.Record.EventID != "new-1" {
		t.Errorf("got %s, want new-1", got.Record.EventID)
	}
	if got := poll(t, subscribe(t, b, "g", "orders"), 1)[0]; got.Record.EventID != "new-1" {
		t.Errorf("got %s, want new-1", got.Record.EventID)
	}
}

func TestAnotherNumberOfPartitionsIsNoticed(t *testing.T) {
	s := startServer(t)
	b := open(t, s.ClientURL(), nil)
	ensure(t, b, broker.TopicSpec{Name: "orders", Partitions: 2})
	publish(t, b, record("orders", "a", "1"))
	sub := subscribe(t, b, "g", "orders")
	poll(t, sub, 1)
	if err := admin(t, s.ClientURL()).DeleteStream(t.Context(), "waybill-orders"); err != nil {
		t.Fatal(err)
	}
	other := open(t, s.ClientURL(), nil)
	ensure(t, other, broker.TopicSpec{Name: "orders", Partitions: 5})
	// The publisher still believes in two partitions: it reaches nobody once, and
	// then asks again.
	wantClasses(t, try(t, b, record("orders", "a", "2")), "topic unavailable")
	publish(t, b, record("orders", "a", "2"))
	if _, err := sub.(broker.Assigner).Partitions(t.Context()); err == nil || !strings.Contains(err.Error(), "5 partitions") {
		t.Errorf("got error %v, want one that tells the change", err)
	}
	if got := poll(t, subscribe(t, b, "other", "orders"), 1)[0]; got.Record.EventID != "2" {
		t.Errorf("got %s, want 2", got.Record.EventID)
	}
}

func TestAStreamOfSomebodyElseIsNotTouched(t *testing.T) {
	s := startServer(t)
	b := open(t, s.ClientURL(), nil)
	_, err := admin(t, s.ClientURL()).CreateStream(t.Context(), jetstream.StreamConfig{Name: "waybill-orders", Subjects: []string{"waybill.orders.>"}})
	if err != nil {
		t.Fatal(err)
	}
	wantClasses(t, try(t, b, record("orders", "a", "1")), "topic unavailable")
	if err := b.EnsureTopics(t.Context(), []broker.TopicSpec{{Name: "orders"}}); err == nil {
		t.Error("the stream was accepted")
	}
}

// A forbidden subject is not answered at all; the server tells of it apart.
func TestAForbiddenTopicStopsOnlyItself(t *testing.T) {
	const limited, all = "waybill-limited", "waybill-all"
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true,
		Users: []*server.User{
			{Username: all, Password: "secret-a"},
			{Username: limited, Password: "secret-b", Permissions: &server.Permissions{
				Publish: &server.SubjectPermission{Deny: []string{"waybill.closed.>", "$JS.API.STREAM.INFO.waybill-hidden"}},
			}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(patience) {
		t.Fatal("the server does not start")
	}
	owner := open(t, s.ClientURL(), &natsjs.Config{User: all, Password: "secret-a"})
	ensure(t, owner, broker.TopicSpec{Name: "open"}, broker.TopicSpec{Name: "closed"}, broker.TopicSpec{Name: "hidden"})
	b := open(t, s.ClientURL(), &natsjs.Config{User: limited, Password: "secret-b"})
	for range 2 {
		wantClasses(t, try(t, b, record("open", "a", "1"), record("closed", "a", "2"), record("open", "b", "3"), record("hidden", "a", "4")),
			"ok", "topic unavailable", "ok", "topic unavailable")
	}

	_, err = natsjs.Open(t.Context(), s.ClientURL(), &natsjs.Config{User: all, Password: "wrong-secret"})
	if err == nil || strings.Contains(err.Error(), "wrong-secret") {
		t.Errorf("got error %v, want one without the password", err)
	}
}

func TestOpenShowsNoSecret(t *testing.T) {
	tests := []struct{ name, url string }{
		{"nobody listens", "nats://user:hush@127.0.0.1:1"},
		{"two servers", "nats://user:hush@127.0.0.1:1,nats://hush@127.0.0.1:2"},
		{"not a URL", "nats://user:hush@127.0.0.1:port"},
		{"odd characters", "nats://user:hush%zz@127.0.0.1:1"},
		{"control character", "nats://user:hush\x01@127.0.0.1:1"},
		{"nothing", ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			b, err := natsjs.Open(t.Context(), test.url, nil)
			if err == nil {
				_ = b.Close()
				t.Fatal("got no error")
			}
			if strings.Contains(err.Error(), "hush") {
				t.Errorf("the error shows the secret: %v", err)
			}
		})
	}
}

func TestAnUnfitConfigurationIsRefused(t *testing.T) {
	for _, config := range []natsjs.Config{{Prefix: "a.b"}, {Prefix: strings.Repeat("a", 33)}, {Partitions: -1}, {Partitions: 5000}, {Replicas: 9}, {MaxBytes: -1}} {
		if b, err := natsjs.Open(t.Context(), "nats://127.0.0.1:1", &config); err == nil || !strings.Contains(err.Error(), "configure") {
			t.Errorf("%+v: got error %v, want one about the configuration", config, err)
			if err == nil {
				_ = b.Close()
			}
		}
	}
}

// A partition holds more than a reader keeps in memory, in count and in bytes.
func TestAReaderGoesOnWhenItsBufferWasFull(t *testing.T) {
	b := open(t, startServer(t).ClientURL(), nil)
	ensure(t, b, broker.TopicSpec{Name: "many", Partitions: 1}, broker.TopicSpec{Name: "large", Partitions: 1})
	var many []waybill.Record
	for range 1500 {
		many = append(many, record("many", waybill.NewID(), waybill.NewID()))
	}
	publish(t, b, many...)
	var large []waybill.Record
	for range 12 {
		r := record("large", waybill.NewID(), waybill.NewID())
		r.Value = make([]byte, waybill.MaxDataBytes)
		large = append(large, r)
	}
	publish(t, b, large...)
	for topic, want := range map[string][]waybill.Record{"many": many, "large": large} {
		seen := make(map[string]bool)
		var last int64
		for _, d := range poll(t, subscribe(t, b, "g", topic), len(want)) {
			if d.Position <= last {
				t.Errorf("%s: position %d comes after %d", topic, d.Position, last)
			}
			last = d.Position
			seen[d.Record.EventID] = true
		}
		if len(seen) != len(want) {
			t.Errorf("%s: got %d different events, want %d", topic, len(seen), len(want))
		}
	}
}

// The server lives on and says nothing of the broken connection.
func TestASeveredConnectionLosesNothing(t *testing.T) {
	s := startServer(t)
	between := startProxy(t, s.address())
	b := open(t, between.url(), nil)
	ensure(t, b, broker.TopicSpec{Name: "orders", Partitions: 2})
	sub := subscribe(t, b, "g", "orders")
	seen := make(map[string]bool)
	for round := range 5 {
		var batch []waybill.Record
		for range 50 {
			batch = append(batch, record("orders", waybill.NewID(), waybill.NewID()))
		}
		pending := batch
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		if round%2 == 0 {
			between.sever() // before the call notices; else while its answers come
		} else {
			time.AfterFunc(time.Millisecond, between.sever)
		}
		for len(pending) > 0 {
			var again []waybill.Record
			for i, err := range b.Publish(ctx, pending) {
				if err == nil {
					continue
				}
				if class, _ := broker.Classify(err); class != broker.ClassUnavailable && class != broker.ClassUnknown || ctx.Err() != nil {
					t.Fatalf("publish %s: %v", pending[i].EventID, err)
				}
				again = append(again, pending[i])
			}
			pending = again
		}
		for _, r := range batch {
			for !seen[r.EventID] {
				deliveries, err := sub.Poll(ctx, 100, time.Second)
				if ctx.Err() != nil {
					t.Fatalf("%s is missing, last error %v", r.EventID, err)
				}
				for _, d := range deliveries {
					seen[d.Record.EventID] = true
				}
			}
		}
		cancel()
	}
}
