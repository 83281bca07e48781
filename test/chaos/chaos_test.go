package chaos

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/test/chaos/verdict"
)

var (
	lasts    = flag.Duration("chaos.for", 40*time.Second, "how long the mischief of each pair lasts")
	seedFlag = flag.Uint64("chaos.seed", 0, "which mischief is done; 0 draws one")
	mode     = flag.String("chaos.mode", "poll", "how the relays learn of events: poll, cdc or switch")
	keep     = flag.String("chaos.keep", "", "a folder for all that the processes of a run write")
	patience = flag.Duration("chaos.patience", 2*time.Minute, "how long all may take to come to rest afterwards")
)

const envMode = "WAYBILL_CHAOS_MODE"

const (
	sigkill = syscall.SIGKILL
	sigterm = syscall.SIGTERM
)

func TestPostgresAndKafka(t *testing.T) {
	chaos(t, "postgres15", killBroker, killDatabase, failover)
}

func TestMySQLAndKafka(t *testing.T) {
	chaos(t, "mysql9", killBroker, killDatabase, restart)
}

func chaos(t *testing.T, kind string, great ...string) {
	if testing.Short() {
		t.Skip("starts servers of its own and torments them for a minute")
	}
	if !knownMode(*mode) {
		t.Fatalf("-chaos.mode=%s: want one of %v", *mode, modes)
	}
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64N(1_000_000) + 1
	}
	again := fmt.Sprintf("go test ./test/chaos -run %s -v -chaos.for %v -chaos.seed %d -chaos.mode %s", t.Name(), *lasts, seed, *mode)
	t.Log(again)
	if *lasts >= 3*time.Minute {
		great = append(great, restartBroker)
	}
	setUp := time.Now()
	w := newTown(t, kind, seed)
	began := time.Now()
	t.Logf("set up in %.1f s", began.Sub(setUp).Seconds())
	w.torment(plan(seed, *lasts, ofMode(*mode), great), *lasts)

	// After the last fault nobody does anything any more.
	wait(t.Context(), time.Second)
	writer := w.posts[0]
	if err := writer.leave(); err != nil {
		t.Errorf("the writer after SIGTERM: %v", err)
	}
	mended := time.Now()
	stuck := w.rest()
	took := time.Since(mended)
	for _, p := range w.posts[1:] {
		if err := p.leave(); err != nil {
			t.Errorf("%s after SIGTERM: %v", p.role, err)
		}
	}
	for _, p := range w.posts {
		for _, text := range p.failed {
			t.Errorf("P11: a %s ended by itself: %s", p.role, text)
		}
	}
	for i, p := range w.posts {
		if err := p.keepOutput(*keep, i); err != nil {
			t.Error(err)
		}
	}
	seen := w.look(stuck)
	findings := seen.Check()
	shown := make(map[string]int)
	for _, f := range findings {
		if shown[f.Promise]++; shown[f.Promise] <= 10 {
			t.Error(f)
		}
	}
	for promise, n := range shown {
		t.Errorf("%s: %d findings in all", promise, n)
	}
	if t.Failed() {
		t.Logf("again: %s", again)
		for _, p := range w.posts {
			p.tell()
		}
	}
	t.Log(w.summary(seen, len(findings), began, took))
	w.enough(seen)
	w.seesStrangers(seen)
}

// seesStrangers has the test itself write to the queue, which owns no lane: if
// that is no finding, then what the triggers saw of the relays says nothing.
func (w *town) seesStrangers(seen *verdict.Seen) {
	w.t.Helper()
	if len(seen.Facts) == 0 {
		return
	}
	row := seen.Facts[0].Row
	for _, statement := range []string{
		fmt.Sprintf(`INSERT INTO outbox_pending (id, lane, key_hash, topic_hash) VALUES (%d, 1, 1, 1)`, row),
		fmt.Sprintf(`DELETE FROM outbox_pending WHERE id = %d`, row),
	} {
		if _, err := w.shop.ExecContext(w.t.Context(), statement); err != nil {
			w.t.Fatalf("%s: %v", statement, err)
		}
	}
	shop, err := verdict.ReadShop(w.t.Context(), w.shop)
	if err != nil {
		w.t.Fatal(err)
	}
	strange := *seen
	strange.Shop = shop
	if !slices.ContainsFunc(strange.Check(), func(f verdict.Finding) bool { return f.Promise == "P6" }) {
		w.t.Errorf("a write by somebody who owns no lane is no finding")
	}
}

// rest waits until all has come to rest, and says what has not.
func (w *town) rest() (stuck string) {
	late := time.NewTimer(*patience)
	defer late.Stop()
	for {
		if stuck = w.restless(w.t.Context()); stuck == "" {
			return ""
		}
		select {
		case <-late.C:
			return stuck
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// look reads what is left.
func (w *town) look(stuck string) *verdict.Seen {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	seen := &verdict.Seen{Groups: groups, Stuck: stuck}
	var err error
	if seen.History, err = verdict.ReadHistory(w.history); err != nil {
		w.t.Fatal(err)
	}
	if seen.Shop, err = verdict.ReadShop(ctx, w.shop); err != nil {
		w.t.Fatal(err)
	}
	if seen.Back, err = verdict.ReadBack(ctx, w.back); err != nil {
		w.t.Fatal(err)
	}
	if seen.Records, err = verdict.ReadTopic(ctx, w.kafka.Address(), topic); err != nil {
		w.t.Fatal(err)
	}
	return seen
}

// summary is what a run was. All processes have ended.
func (w *town) summary(seen *verdict.Seen, findings int, began time.Time, took time.Duration) string {
	states := make(map[verdict.State]int)
	for _, e := range seen.History {
		states[e.State]++
	}
	duplicates := int64(0)
	for _, c := range seen.Consumed {
		duplicates += c.Duplicates
	}
	logged := told(seen)
	stale, away := 0, 0
	for _, p := range w.posts {
		stale += p.count("a write was refused")
		away += p.away
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s and Kafka, seed %d, mode %s, %.0f s of mischief in %.0f s, at rest %.1f s after the last fault\n", w.kind, w.seed, *mode,
		lasts.Seconds(), time.Since(began).Seconds(), took.Seconds())
	fmt.Fprintf(&b, "transactions: %d committed, %d rolled back, %d failed, %d with an unknown end, of which %d had been committed\n",
		states[verdict.OK], states[verdict.RolledBack], states[verdict.Failed], states[verdict.Unknown], lostAnswers(seen))
	fmt.Fprintf(&b, "events: %d committed, %d of them told by the log, %d records, %d effects, %d duplicates absorbed, %d writes by stale owners refused\n",
		len(seen.Facts), logged, len(seen.Records), len(seen.Effects), duplicates, stale)
	var done []string
	for _, what := range slices.Sorted(maps.Keys(w.done)) {
		done = append(done, fmt.Sprintf("%d %s", w.done[what], what))
	}
	if *mode != modePoll {
		fmt.Fprintf(&b, "losses of the log that relays named: %v\n", w.losses())
	}
	fmt.Fprintf(&b, "done: %s; %d starts met a server that was away\n", strings.Join(done, ", "), away)
	fmt.Fprintf(&b, "findings: %d; events of which one could be wrong with 95 %%: less than 1 in %d", findings, len(seen.Facts)/3)
	return b.String()
}

// told is how many events the database's log has told of.
func told(seen *verdict.Seen) (n int) {
	for i := range seen.Receipts {
		if seen.Receipts[i].Via == store.ModeCDC {
			n++
		}
	}
	return n
}

// lostAnswers is how many transactions were committed of which the writer never
// heard: those without an end, too.
func lostAnswers(seen *verdict.Seen) (n int) {
	there := make(map[string]bool, len(seen.Facts))
	for i := range seen.Facts {
		there[seen.Facts[i].ID] = true
	}
	answered := make(map[string]bool)
	for _, e := range seen.History {
		if e.State == verdict.OK {
			answered[e.Tx] = true
		}
	}
	for _, e := range seen.History {
		if e.State == verdict.Committing && !answered[e.Tx] && there[e.Events[0].ID] {
			n++
		}
	}
	return n
}

// enough fails a run that proves nothing because nothing happened.
func (w *town) enough(seen *verdict.Seen) {
	w.t.Helper()
	refused := make(map[string]bool)
	for i := range seen.Facts {
		refused[seen.Facts[i].Type] = true
	}
	if len(seen.Facts) < 500 || len(seen.Writes) < 500 {
		w.t.Errorf("%d events and %d writes to the queue are too few to prove anything", len(seen.Facts), len(seen.Writes))
	}
	if !refused[verdict.Poison] || !refused[verdict.TooLarge] {
		w.t.Error("there was no event to refuse")
	}
	w.logged(seen)
	for _, what := range []string{killBroker, killDatabase} {
		if w.done[what] == 0 {
			w.t.Errorf("there was no act: %s", what)
		}
	}
}
