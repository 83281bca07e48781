package trading

import (
	"context"
	"database/sql"
	"fmt"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
	"github.com/waybillhq/waybill/broker/kafka"
	"github.com/waybillhq/waybill/examples/trading/chain"
	"github.com/waybillhq/waybill/inbox/guard"
	"github.com/waybillhq/waybill/internal/testenv"
	"github.com/waybillhq/waybill/outbox"
	"github.com/waybillhq/waybill/relay"
	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/mysql"
	"github.com/waybillhq/waybill/store/postgres"
	"github.com/waybillhq/waybill/test/lab"
)

// town is the shop and its relay, the back office with fulfilment, points and
// ledger, and its relay, Kafka between them, and the coupon service. The
// consumers of the back office are processes of their own.
type town struct {
	t          *testing.T
	kind, run  string
	kafka      string
	session    time.Duration // after which silence a consumer has lost its partitions
	shop       *chain.Shop
	shopDB     *sql.DB
	back       *sql.DB
	backDSN    string
	held       store.HeldReader
	coupons    chain.CouponService
	couponsURL string
	mischief   []*mischief
	ofShop     int // effects that the events of the shop must have
}

// side is a database as either kind of store has it.
type side struct {
	outbox   store.Outbox
	held     store.HeldReader
	appender store.Appender[store.SQLTx]
	db       *sql.DB
	dsn      string
}

func newTown(t *testing.T, kind string, delayed float64) *town {
	t.Helper()
	w := &town{t: t, kind: kind, run: strings.ReplaceAll("trading-"+waybill.NewID(), "_", "-"), kafka: testenv.Kafka4(t)}
	w.session = shortestSession(t, w.kafka)
	open, dialect := openPostgres, guard.Postgres
	if kind == "mysql9" {
		open, dialect = openMySQL, guard.MySQL
	}
	shop, back := open(t), open(t)
	for _, table := range chain.ShopTables {
		execute(t, shop.db, table)
	}
	for _, table := range slices.Concat(chain.FulfilmentTables, chain.PointsTables, chain.LedgerTables) {
		execute(t, back.db, table)
	}
	w.shopDB, w.back, w.backDSN, w.held = shop.db, back.db, back.dsn, back.held
	w.shop = &chain.Shop{DB: shop.db, Dialect: dialect, Writer: outbox.NewWriter(shop.appender, &outbox.Config{Source: "/shop"}), Topic: ordersTopic(w.run)}

	server := httptest.NewServer(&w.coupons)
	t.Cleanup(server.Close)
	w.couponsURL = server.URL

	for _, st := range []store.Outbox{shop.outbox, back.outbox} {
		b, err := kafka.Open(t.Context(), &kafka.Config{Brokers: []string{w.kafka}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = b.Close() })
		topics := []broker.TopicSpec{{Name: ordersTopic(w.run), Partitions: 4}, {Name: fulfilmentsTopic(w.run), Partitions: 2}}
		if err := b.EnsureTopics(t.Context(), topics); err != nil {
			t.Fatal(err)
		}
		m := &mischief{Publisher: b, duplicated: 0.10, delayed: delayed}
		w.mischief = append(w.mischief, m)
		r, err := relay.New(st, m, nil)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(context.Background())
		var running sync.WaitGroup
		running.Go(func() { m.run(ctx) })
		running.Go(func() {
			if err := r.Run(ctx); err != nil {
				t.Errorf("relay: %v", err)
			}
		})
		t.Cleanup(func() {
			stop()
			running.Wait()
		})
	}
	return w
}

func openPostgres(t *testing.T) side {
	t.Helper()
	dsn := lab.Postgres15(t)
	st, err := postgres.Open(t.Context(), dsn, nil)
	if err != nil {
		t.Fatal(err)
	}
	migrate(t, st)
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxIdleConns(24)
	t.Cleanup(func() { _ = db.Close() })
	return side{outbox: st, held: st, appender: st.SQL(), db: db, dsn: dsn}
}

func openMySQL(t *testing.T) side {
	t.Helper()
	dsn := lab.MySQL(t, testenv.MySQL9(t))
	st, err := mysql.Open(t.Context(), dsn, nil)
	if err != nil {
		t.Fatal(err)
	}
	migrate(t, st)
	st.DB().SetMaxIdleConns(24)
	return side{outbox: st, held: st, appender: st, db: st.DB(), dsn: dsn}
}

func migrate(t *testing.T, st store.Schema) {
	t.Helper()
	t.Cleanup(func() { _ = st.Close() })
	if err := st.Migrate(t.Context(), store.MigrateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func execute(t *testing.T, db *sql.DB, statement string) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

func number(t *testing.T, db *sql.DB, query string) (n int) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), query).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

// start runs this binary as a consumer.
func (w *town) start() *lab.Process {
	w.t.Helper()
	p, err := lab.Start(w.t, envKind+"="+w.kind, envDSN+"="+w.backDSN, envKafka+"="+w.kafka, envRun+"="+w.run, envCoupons+"="+w.couponsURL, envSession+"="+w.session.String())
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		<-p.Done()
		if text := p.Output.String(); w.t.Failed() && text != "" {
			w.t.Logf("consumer:\n%.4000s", text)
		}
	})
	return p
}

// kill ends a consumer as a power cut would.
func (w *town) kill(p *lab.Process) {
	w.t.Helper()
	if err := p.Kill(); err != nil {
		w.t.Fatalf("consumer: %v\n%s", err, p.Output)
	}
}

// stop asks a consumer to drain, and demands that it does.
func (w *town) stop(p *lab.Process) {
	w.t.Helper()
	if err := p.Stop(); err != nil {
		w.t.Errorf("consumer after SIGTERM: %v, want exit 0\n%s", err, p.Output)
	}
}

// shortestSession asks the broker for the least that it lets a consumer be
// silent, because the partitions of one that was killed are read by nobody for so
// long.
func shortestSession(t *testing.T, address string) time.Duration {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(address))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	brokers, err := admin.ListBrokers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	settings, err := admin.DescribeBrokerConfigs(t.Context(), brokers.NodeIDs()...)
	if err != nil {
		t.Fatal(err)
	}
	for _, broker := range settings {
		for _, c := range broker.Configs {
			if least, err := strconv.Atoi(c.MaybeValue()); c.Key == "group.min.session.timeout.ms" && err == nil {
				return max(time.Duration(least)*time.Millisecond, 2*time.Second)
			}
		}
	}
	t.Fatal("the broker does not tell group.min.session.timeout.ms")
	return 0
}

// torment kills consumers, one after the other, and starts another in the place
// of each; now and then one stops in good order instead.
func (w *town) torment(kills int, processes []*lab.Process) {
	w.t.Helper()
	// A group whose members die faster than it misses them never gets to read.
	tick := time.NewTicker(w.session + 2*time.Second)
	defer tick.Stop()
	for n := 0; kills > 0 && !w.t.Failed(); n++ {
		<-tick.C
		victim := n % len(processes)
		if n%4 == 3 {
			w.stop(processes[victim])
		} else {
			w.kill(processes[victim])
			kills--
		}
		processes[victim] = w.start()
	}
}

func (w *town) String() string { return fmt.Sprintf("%s and Kafka", w.kind) }
