package chaos

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/waybillhq/waybill/broker"
	"github.com/waybillhq/waybill/broker/kafka"
	"github.com/waybillhq/waybill/internal/testenv"
	"github.com/waybillhq/waybill/test/lab"
)

const relays = 3

// Which consumers there are, by the group that each belongs to.
var consumers = []string{"stock", "stock", "points"}

// town is all that a run is made of.
type town struct {
	t          *testing.T
	kind       string
	seed       uint64
	history    string
	kafka      *lab.Server
	db         database
	shop, back *sql.DB // direct
	links      []*link
	posts      []*post // the writer, the relays, the consumers
	done       map[string]int
	mu         sync.Mutex // guards done
}

func newTown(t *testing.T, kind string, seed uint64) *town {
	t.Helper()
	w := &town{t: t, kind: kind, seed: seed, history: filepath.Join(t.TempDir(), "history"), done: make(map[string]int)}
	w.kafka = lab.NewServer(t, "kafka4", "WAYBILL_ENV_KAFKA4_JARS="+testenv.Kafka4Jars(t), "WAYBILL_ENV_KAFKA4_HEAP=256m")
	up := make(chan error, 1)
	go func() { up <- w.kafka.Up() }()
	switch kind {
	case "postgres15":
		p := newPair(t)
		w.db, w.shop, w.back = p, p.open("shop"), p.open("back")
	case "mysql9":
		s := newSingle(t)
		w.db, w.shop, w.back = s, s.open("shop"), s.open("back")
	}
	if err := <-up; err != nil {
		t.Fatal(err)
	}
	b, err := kafka.Open(t.Context(), &kafka.Config{
		Brokers: []string{w.kafka.Address()}, Replicas: 1, TopicConfig: map[string]string{"max.message.bytes": strconv.Itoa(maxMessage)},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.Close() }()
	if err := b.EnsureTopics(t.Context(), []broker.TopicSpec{{Name: topic, Partitions: partitions}}); err != nil {
		t.Fatal(err)
	}
	w.man("writer", "shop", "")
	for range relays {
		w.man("relay", "shop", "")
	}
	for _, group := range consumers {
		w.man("consumer", "back", group)
	}
	return w
}

// man opens a post with its links.
func (w *town) man(role, database, group string) {
	label := fmt.Sprintf("%s %d", role, len(w.posts))
	toDatabase := newLink(w.t, label+" to the database", w.db.servers()...)
	w.links = append(w.links, toDatabase)
	environment := []string{
		envRole + "=" + role, envKind + "=" + w.kind, envGroup + "=" + group, envBroker + "=" + w.kafka.Address(), envHistory + "=" + w.history,
		envMode + "=" + *mode,
	}
	if role != "writer" {
		toBroker := newLink(w.t, label+" to the broker", w.kafka)
		w.links = append(w.links, toBroker)
		environment = append(environment, envKafka+"="+toBroker.addresses()[0])
	}
	p := &post{t: w.t, role: role}
	p.environment = func(name string) ([]string, error) {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := w.db.admit(ctx, name); err != nil {
			return nil, err
		}
		return append([]string{
			envName + "=" + name, envDSN + "=" + w.db.dsn(toDatabase.addresses(), name, database),
			envSeed + "=" + strconv.FormatUint(w.seed+uint64(started.Load()), 10),
		}, environment...), nil
	}
	w.posts = append(w.posts, p)
	p.keep()
}

// torment does what a plan says, and then ends all that is wrong.
func (w *town) torment(acts []act, total time.Duration) {
	w.t.Helper()
	began := time.Now()
	great := w.db.great()
	great[killBroker] = func() error { return errors.Join(w.kafka.Kill(), w.kafka.Up()) }
	great[restartBroker] = func() error { return errors.Join(w.kafka.Down(), w.kafka.Up()) }
	greatActs := make(chan act, len(acts))
	var running sync.WaitGroup
	running.Go(func() {
		for a := range greatActs {
			if err := great[a.what](); err != nil {
				w.t.Errorf("%v: %v", a, err)
			}
			w.count(a.what)
		}
	})
	rest := func(d time.Duration) { wait(w.t.Context(), d) }
	for _, a := range acts {
		rest(a.at - time.Since(began))
		w.t.Log(a)
		if great[a.what] != nil {
			greatActs <- a
			continue
		}
		running.Go(func() { w.act(a, rest) })
	}
	rest(total - time.Since(began))
	close(greatActs)
	running.Wait()
}

func (w *town) count(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done[what]++
}

// act does one of the small acts.
func (w *town) act(a act, rest func(time.Duration)) {
	p := w.posts[a.who%len(w.posts)]
	switch a.what {
	case loseLog, switchMode:
		w.actOnLog(a)
	case kill:
		if p.order(sigkill) {
			w.count("SIGKILL of a " + p.role)
		}
	case stop:
		if p.order(sigterm) {
			w.count("SIGTERM of a " + p.role)
		}
	case freeze:
		p = w.posts[1+a.who%(len(w.posts)-1)] // the writer has no lease that could run out
		if p.freeze() {
			rest(a.lasts)
			p.thaw()
			w.count("SIGSTOP of a " + p.role)
		}
	case disturb, loseAnswers:
		l, f := w.links[a.who%len(w.links)], faults[a.detail%len(faults)]
		if a.what == loseAnswers {
			l, f = w.links[0], mute
		}
		if !l.take() {
			return
		}
		defer l.leave()
		if err := l.begin(f); err != nil {
			w.t.Error(err)
		}
		rest(a.lasts)
		l.mend()
		w.count("link " + f.name)
	}
}

const unsentSQL = `
SELECT COUNT(*) FROM outbox_pending p JOIN outbox_event e ON e.id = p.id
WHERE p.status = 'PENDING' AND (e.aggregate_id NOT LIKE 'large-%%' OR e.aggregate_version <= %d)`

const sentSQL = `SELECT COUNT(*) FROM outbox_receipt`

const settledSQL = `
SELECT (SELECT COUNT(*) FROM consumed_event WHERE consumer_group = '%[1]s') +
       (SELECT COUNT(*) FROM held_event WHERE consumer_group = '%[1]s' AND state <> 'RETRY')`

// restless says what still has to come to rest, nothing if nothing has.
func (w *town) restless(ctx context.Context) string {
	unsent, err := number(ctx, w.shop, fmt.Sprintf(unsentSQL, refusedAt))
	if err != nil {
		return err.Error()
	}
	sent, err := number(ctx, w.shop, sentSQL)
	if err != nil {
		return err.Error()
	}
	var all []string
	if unsent > 0 {
		all = append(all, fmt.Sprintf("%d events are not sent", unsent))
	}
	for _, group := range groups {
		settled, err := number(ctx, w.back, fmt.Sprintf(settledSQL, group))
		if err != nil {
			return err.Error()
		}
		if settled != sent {
			all = append(all, fmt.Sprintf("group %s has settled %d of %d", group, settled, sent))
		}
	}
	return strings.Join(all, ", ")
}
