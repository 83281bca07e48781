package kafka

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
	"github.com/waybillhq/waybill/broker/kafka"
	"github.com/waybillhq/waybill/internal/testenv"
	"github.com/waybillhq/waybill/outbox"
	"github.com/waybillhq/waybill/relay"
	"github.com/waybillhq/waybill/store/memstore"
	"github.com/waybillhq/waybill/test/lab"
)

const (
	topic    = "orders"
	keys     = 20
	rounds   = 40
	patience = 3 * time.Minute
)

func TestEventsOutliveRestartsOfKafka(t *testing.T) {
	server := startServer(t)
	b, err := kafka.Open(t.Context(), &kafka.Config{Brokers: []string{server.address()}, Replicas: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.Close() }()
	if err := b.EnsureTopics(t.Context(), []broker.TopicSpec{{Name: topic, Partitions: 4}}); err != nil {
		t.Fatal(err)
	}

	st := memstore.New(nil)
	spent := make(chan string, keys*rounds)
	r, err := relay.New(st, b, &relay.Config{
		PublishTimeout: 3 * time.Second, LeaseTTL: 3 * time.Second, PublishBatch: 50,
		Events: relay.Events{Failed: func(info relay.FailedInfo) {
			switch info.Class {
			case broker.ClassUnavailable.String(), broker.ClassUnknown.String(), broker.ClassPredecessor.String():
			default:
				spent <- fmt.Sprintf("%s: %s: %v", info.EventID, info.Class, info.Err)
			}
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	relayed := make(chan error, 1)
	go func() { relayed <- r.Run(ctx) }()

	reader := &reader{next: make(map[string]int)}
	read := make(chan error, 1)
	sub, err := b.Subscribe(ctx, broker.SubscribeRequest{Group: "inventory", Topics: []string{topic}})
	if err != nil {
		t.Fatal(err)
	}
	go func() { read <- reader.run(ctx, sub, keys*rounds) }()

	writer := outbox.NewWriter(st, nil)
	for n := range rounds {
		tx, err := st.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for key := range keys {
			err := writer.Append(ctx, tx, waybill.Event{
				ID: fmt.Sprintf("%d-%d", key, n), Type: "OrderChanged", Topic: topic, AggregateType: "order",
				AggregateID: fmt.Sprintf("order-%d", key), AggregateVersion: int64(n + 1), Data: []byte("{}"),
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := tx.Commit(ctx); err != nil {
			t.Fatal(err)
		}
		switch n {
		case rounds / 4:
			server.kill(t)
		case rounds / 3:
			lab.Until(t, patience, "a red relay", func() bool { return r.Health().State == relay.Red })
			server.run(t, "up")
		case rounds / 2:
			server.run(t, "down")
			server.run(t, "up")
		}
	}
	select {
	case err := <-read:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Fatalf("not all events arrived: health %+v", r.Health())
	}
	lab.Until(t, patience, "an empty queue and a green relay", func() bool {
		counts, err := st.Counts(ctx)
		return err == nil && counts.Pending+counts.Dead == 0 && r.Health().State == relay.Green
	})
	stop()
	if err := <-relayed; err != nil {
		t.Error(err)
	}
	close(spent)
	for what := range spent {
		t.Errorf("an outage spent an attempt of %s", what)
	}
	_ = sub.Close()
}

// reader checks that the first arrivals of each key come in order.
type reader struct{ next map[string]int }

func (r *reader) run(ctx context.Context, sub broker.Subscription, n int) error {
	for seen := 0; seen < n; {
		batch, err := sub.Poll(ctx, 100, 200*time.Millisecond)
		if ctx.Err() != nil {
			return fmt.Errorf("%d of %d events came, last error: %w", seen, n, err)
		}
		var positions []broker.Position
		for _, d := range batch {
			_, text, _ := strings.Cut(d.Record.EventID, "-")
			i, err := strconv.Atoi(text)
			if err != nil || i > r.next[d.Record.Key] {
				return fmt.Errorf("%s came when %d was due of %s", d.Record.EventID, r.next[d.Record.Key], d.Record.Key)
			}
			if i == r.next[d.Record.Key] {
				r.next[d.Record.Key]++
				seen++
			}
			positions = append(positions, broker.Position{Partition: broker.Partition{Topic: topic, ID: d.Partition}, Settled: d.Position})
		}
		if len(positions) > 0 {
			_ = sub.Commit(ctx, positions) // a lost commit only repeats
		}
	}
	return nil
}

// server is a Kafka that no other test uses.
type server struct {
	home string
	port int
	jars string
}

func startServer(t *testing.T) *server {
	t.Helper()
	s := &server{home: t.TempDir(), port: freePorts(t), jars: testenv.Kafka4Jars(t)}
	if os.Getuid() == 0 { // the server runs as another user, who must get there
		for _, folder := range []string{s.home, filepath.Dir(s.home)} {
			if err := os.Chmod(folder, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Cleanup(func() { s.run(t, "down") })
	s.run(t, "up")
	return s
}

func (s *server) address() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

func (s *server) run(t *testing.T, verb string) {
	t.Helper()
	command := exec.Command("../env/env", verb, "kafka4")
	command.Env = append(os.Environ(),
		"WAYBILL_ENV_HOME="+s.home, "WAYBILL_ENV_KAFKA4_PORT="+strconv.Itoa(s.port),
		"WAYBILL_ENV_KAFKA4_JARS="+s.jars, "WAYBILL_ENV_KAFKA4_HEAP=256m")
	var out bytes.Buffer
	command.Stdout, command.Stderr = &out, &out
	if err := command.Run(); err != nil {
		t.Fatalf("%s: %v\n%s", verb, err, &out)
	}
}

// kill ends the server without a word to its clients.
func (s *server) kill(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(s.home, "kafka4", "pid"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// freePorts returns the first of three free ports in a row.
func freePorts(t *testing.T) int {
	t.Helper()
	for range 100 {
		first, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		port := first.Addr().(*net.TCPAddr).Port
		free := true
		for next := port + 1; next <= port+2; next++ {
			l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(next)))
			if free = free && err == nil; err == nil {
				_ = l.Close()
			}
		}
		_ = first.Close()
		if free {
			return port
		}
	}
	t.Fatal("there are no three free ports in a row")
	return 0
}
