package crash

import (
	"regexp"
	"syscall"
	"testing"

	"github.com/waybillhq/waybill/store"
)

// The moments at which a relay dies, each with the number of times it passes
// the moment unharmed, counting the fatal one.
var relayPoints = []struct {
	point      string
	duplicates bool // the moment leaves accepted events unsettled
}{
	{point: "relay.fetched:1"},
	{point: "relay.before_publish:2"},
	{point: "relay.mid_batch:2", duplicates: true},
	{point: "relay.published:2", duplicates: true},
	{point: "relay.settled:2"},
	{point: "relay.renewing:3"},
	{point: "relay.dead:1"},
}

func TestRelayIsKilled(t *testing.T) {
	for _, c := range relayPoints {
		t.Run(c.point, func(t *testing.T) {
			t.Parallel()
			eachKind(t, func(t *testing.T, w *world) {
				w.append(8, keys(20)...)
				w.append(1, tooLarge) // must end DEAD, whoever dies over it
				first := w.start("relay", c.point)
				first.reached()
				first.kill()
				w.append(2, keys(20)...)
				next := w.start("relay", "")
				consumer := w.start("consumer", "")
				w.drained()
				until(t, "the event that is too large DEAD", func() bool {
					return w.number("SELECT count(*) FROM outbox_pending WHERE status = 'DEAD'") == 1
				})
				w.check()
				if n := w.number("SELECT coalesce(sum(duplicates), 0) FROM consumed_event"); c.duplicates && n == 0 {
					t.Error("no duplicate was absorbed: the relay was not killed between sending and settling")
				}
				next.stop()
				consumer.stop()
			})
		})
	}
}

var consumerPoints = []string{"inbox.received:2", "inbox.inserted:30", "inbox.effect:30", "inbox.committed:3", "inbox.holding:1"}

func TestConsumerIsKilled(t *testing.T) {
	for _, point := range consumerPoints {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			eachKind(t, func(t *testing.T, w *world) {
				// Where the commit of a batch is the point, no retry of a held event
				// may pass it first.
				all, poison := keys(10), point != "inbox.committed:3"
				if poison {
					all = append(all, "poison")
				}
				w.append(6, all...)
				relay := w.start("relay", "")
				first := w.start("consumer", point)
				first.reached()
				first.kill()
				w.append(2, all...)
				next := w.start("consumer", "")
				w.drained()
				until(t, "the poison held: one DEAD and the rest behind it", func() bool {
					counts, err := w.held.CountHeld(t.Context(), group)
					return err == nil && (!poison || counts.Dead == 1 && counts.Blocked == 7)
				})
				w.check()
				if n := w.number("SELECT coalesce(sum(duplicates), 0) FROM consumed_event"); !poison && n == 0 {
					t.Error("no duplicate was absorbed: the consumer was not killed between commit and acknowledgement")
				}
				relay.stop()
				next.stop()
			})
		})
	}
}

// Killed again and again while both sides work, with no point agreed upon.
func TestBothAreKilledAtRandom(t *testing.T) {
	eachKind(t, func(t *testing.T, w *world) {
		relay, consumer := w.start("relay", ""), w.start("consumer", "")
		for round := range 6 {
			w.append(3, keys(15)...)
			until(t, "some progress", func() bool {
				return w.number("SELECT count(*) FROM effect") >= (round+1)*15
			})
			if round%2 == 0 {
				relay.kill()
				relay = w.start("relay", "")
			} else {
				consumer.kill()
				consumer = w.start("consumer", "")
			}
		}
		w.drained()
		w.check()
		relay.stop()
		consumer.stop()
	})
}

// What a relay logs when it finds its lanes taken: by a write, or, if that comes
// first, by a renewal. A relay that starts logs lost=0.
var lateNotice = regexp.MustCompile(`a write was refused|lost=[1-9]`)

// A relay is stopped with accepted, unsettled events, longer than its lease
// lives; another takes over; then the first goes on.
func TestStoppedRelayComesBackTooLate(t *testing.T) {
	eachKind(t, func(t *testing.T, w *world) {
		// One call's worth of events, so that it is not stopped in a transaction: a
		// stopped process that has SQLite's only lock would stop everyone.
		w.append(1, keys(20)...)
		late := w.start("relay", "relay.published:1")
		late.reached()
		next := w.start("relay", "")
		until(t, "the take-over", func() bool {
			return w.number("SELECT count(*) FROM outbox_pending") == 0
		})
		receipts := w.number("SELECT count(*) FROM outbox_receipt")
		stamp := w.text("SELECT max(CAST(published_at AS CHAR(40))) FROM outbox_receipt")
		if err := late.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		until(t, "the refusal of the late write", func() bool {
			return lateNotice.MatchString(late.Output.String())
		})
		if n := w.number("SELECT count(*) FROM outbox_receipt"); n != receipts {
			t.Errorf("%d receipts after the late write, want %d", n, receipts)
		}
		if now := w.text("SELECT max(CAST(published_at AS CHAR(40))) FROM outbox_receipt"); now != stamp {
			t.Errorf("the late write changed a receipt: newest at %s, was %s", now, stamp)
		}
		consumer := w.start("consumer", "")
		w.append(2, keys(20)...)
		w.drained()
		w.check()
		if n := w.number("SELECT coalesce(sum(duplicates), 0) FROM consumed_event"); n == 0 {
			t.Error("no duplicate was absorbed: both relays should have sent the same events")
		}
		until(t, "a fair share for both", func() bool {
			states, err := w.outbox.ListLeases(t.Context())
			owners := make(map[string]int)
			for _, s := range states {
				owners[s.Owner]++
			}
			return err == nil && len(owners) == 2 && owners[""] == 0 && len(states) == store.Lanes
		})
		late.stop()
		next.stop()
		consumer.stop()
	})
}

func (w *world) text(query string) (s string) {
	w.t.Helper()
	if err := w.db.QueryRowContext(w.t.Context(), query).Scan(&s); err != nil {
		w.t.Fatal(err)
	}
	return s
}
