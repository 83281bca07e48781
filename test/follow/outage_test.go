package follow

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
	"github.com/waybillhq/waybill/cdc"
	"github.com/waybillhq/waybill/relay"
	"github.com/waybillhq/waybill/test/lab"
)

var down = flag.Duration("follow.down", 0, "how long the broker is away while what the server keeps of its log is sampled; 0 for as long as 6 MB of log take")

// What the server keeps for the slot, and how much of that the relay has not
// acknowledged, in bytes; and where the log ends.
const retainedSQL = `
SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint, pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn)::bigint,
       pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint
FROM pg_replication_slots WHERE database = current_database()`

type sample struct{ kept, unacknowledged, end int64 }

func (b *base) sample() (s sample) {
	b.t.Helper()
	if err := b.pool.QueryRow(b.t.Context(), retainedSQL).Scan(&s.kept, &s.unacknowledged, &s.end); err != nil {
		b.t.Fatal(err)
	}
	return s
}

// A broker that is away does not make the database keep its log: what is committed
// meanwhile is acknowledged, and found in the queue once the broker is back.
func brokerAway(t *testing.T, b *base) {
	r, _ := b.start()
	b.feed(r, "the log", streams)
	b.append("first")
	b.sent("first")
	b.broker.SetGate(func(context.Context, []waybill.Record) error {
		return broker.Unavailable(broker.ScopeBroker, errors.New("it is away"), "")
	})
	begin, loaded := b.sample(), make(chan int, 1)
	ctx, stop := context.WithCancel(t.Context())
	var load sync.WaitGroup
	load.Go(func() { loaded <- b.load(ctx) })
	if *down > 0 {
		b.watch(begin)
	} else {
		const enough = 6 << 20
		lab.Until(t, patience, "6 MB of log", func() bool { return b.sample().end-begin.end > enough })
	}
	stop()
	load.Wait()
	n := 1 + <-loaded
	// A checkpoint tells the slot what the oldest transaction under way is.
	lab.Until(t, patience, "the log to be released", func() bool {
		b.run("CHECKPOINT")
		s := b.sample()
		return s.unacknowledged < 1<<20 && s.kept < 2<<20
	})
	if got := len(b.broker.EventIDs("orders")); got != 1 {
		t.Errorf("%d records were sent without a broker", got)
	}
	b.broker.SetGate(nil)
	lab.Until(t, patience, "all to be sent", func() bool { return len(b.broker.EventIDs("orders")) >= n })
	b.feed(r, "the log again", func(st *relay.FeedStatus) bool { return streams(st) && st.Losses == 0 })
	b.inOrder()
}

// inOrder checks the order of what load has appended.
func (b *base) inOrder() {
	b.t.Helper()
	last := make(map[string]string)
	for _, record := range b.broker.Records("orders") {
		if record.Key != "k" && record.EventID <= last[record.Key] {
			b.t.Fatalf("%s of key %s is sent after %s", record.EventID, record.Key, last[record.Key])
		}
		last[record.Key] = record.EventID
	}
}

const (
	cutSQL  = `SELECT pg_terminate_backend(active_pid, 5000) FROM pg_replication_slots WHERE database = current_database() AND active`
	dropSQL = `SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = current_database() AND NOT active`
	goneSQL = `SELECT count(*) FROM pg_replication_slots WHERE database = current_database()`
)

// What is done to the log while events are committed costs none of them and no
// order, and the relay says what it was.
func logTorn(t *testing.T, b *base) {
	r, _ := b.start()
	b.feed(r, "the log", streams)
	ctx, stop := context.WithCancel(t.Context())
	loaded := make(chan int, 1)
	go func() { loaded <- b.load(ctx) }()
	told := func(what string, losses, opened uint64) {
		t.Helper()
		before := r.Health().Stats.Feed.Told
		b.feed(r, what, func(st *relay.FeedStatus) bool {
			return streams(st) && st.Losses == losses && st.Streams >= opened && st.Told > before
		})
	}
	for n := range uint64(3) {
		b.run(cutSQL)
		told("the log after a cut", 0, n+2)
	}
	lab.Until(t, patience, "the slot to be gone", func() bool {
		b.run(cutSQL)
		_, _ = b.pool.Exec(t.Context(), dropSQL) // the relay may have been quicker
		var n int
		return b.pool.QueryRow(t.Context(), goneSQL).Scan(&n) == nil && n == 0
	})
	told("the log after the loss of the slot", 1, 5)
	if got := r.Health().Stats.Feed.LastLoss; got != cdc.LostSlot {
		t.Errorf("the loss is %s, want %s", got, cdc.LostSlot)
	}
	stop()
	n := <-loaded
	lab.Until(t, patience, "all to be sent", func() bool { return len(b.broker.EventIDs("orders")) >= n })
	if got := len(b.broker.EventIDs("orders")); got != n {
		t.Errorf("%d records of %d events", got, n)
	}
	b.inOrder()
}

// load appends events of 1,000 bytes until ctx ends, and returns how many.
func (b *base) load(ctx context.Context) (n int) {
	data, pause := strings.Repeat("x", 1000), 5*time.Millisecond
	if *down > 0 {
		pause = 20 * time.Millisecond // a thousand a second
	}
	for ctx.Err() == nil {
		_, err := b.pool.Exec(context.WithoutCancel(ctx), "INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, topic, payload) "+
			"SELECT 'e' || lpad(g::text, 9, '0'), 'order', 'k' || g % 100, 'OrderPaid', 'orders', convert_to($2, 'UTF8') FROM generate_series($1::int, $1::int + 19) AS g", n, data)
		if err != nil {
			b.t.Error(err)
			return n
		}
		n += 20
		time.Sleep(pause)
	}
	return n
}

// watch samples the slot while the broker is away.
func (b *base) watch(begin sample) {
	b.t.Helper()
	var most sample
	var lines strings.Builder
	for at := time.Duration(0); at < *down; at += time.Second {
		time.Sleep(time.Second)
		s := b.sample()
		fmt.Fprintf(&lines, "%3.0f s  written %6.1f MB  kept %5.1f MB  not acknowledged %5.2f MB\n", (at + time.Second).Seconds(),
			float64(s.end-begin.end)/1e6, float64(s.kept)/1e6, float64(s.unacknowledged)/1e6)
		most = sample{max(most.kept, s.kept), max(most.unacknowledged, s.unacknowledged), s.end}
	}
	written := most.end - begin.end
	b.t.Logf("the broker was away for %v\n%sat most: kept %.1f MB, not acknowledged %.2f MB, of %.1f MB written", *down, &lines,
		float64(most.kept)/1e6, float64(most.unacknowledged)/1e6, float64(written)/1e6)
	if most.unacknowledged > written/10 {
		b.t.Errorf("%d bytes of %d were not acknowledged", most.unacknowledged, written)
	}
}
