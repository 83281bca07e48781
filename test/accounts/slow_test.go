package accounts

import (
	"context"
	"flag"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/waybillhq/waybill/reconcile"
)

var slowly = flag.Duration("slow.for", 4*time.Second, "how long events that are delivered slowly are compared, once a second; from a minute on, by all pairs of databases (5m, with -parallel 5)")

// TestSlowDeliveryIsNoFinding commits ten events a second, each marked as sent
// after one second and applied after another one, and compares once a second,
// without a second look.
func TestSlowDeliveryIsNoFinding(t *testing.T) {
	among := pairs
	if *slowly < time.Minute {
		among = pairs[1:3] // PostgreSQL and MySQL, both ways
	}
	eachOf(t, among, func(t *testing.T, write, read reconcile.Database) {
		t.Parallel()
		s := newSlow(t, write, read)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var working sync.WaitGroup
		defer working.Wait()
		failed := make(chan error, 1)
		done := make(chan struct{})
		working.Go(func() {
			defer close(done)
			if err := s.deliver(ctx, int(*slowly/slowTick)); err != nil {
				failed <- err
			}
		})
		second := time.NewTicker(time.Second)
		defer second.Stop()
		runs, inFlight := 0, 0
		for goOn := true; goOn; {
			report := run(t, s.check, write, read)
			if report.Differences+report.Unverified > 0 {
				cancel()
				t.Fatalf("run %d:\n%s", runs, report.Text())
			}
			runs++
			inFlight += report.InFlight
			select {
			case <-second.C:
			case <-done:
				goOn = false
			}
		}
		select {
		case err := <-failed:
			t.Fatal(err)
		default:
		}
		report := run(t, s.check, write, read)
		if got := listed(report); got != "" || report.Keys != slowKeys || report.Rows.Log != int64(*slowly/slowTick) {
			t.Errorf("at rest: %d keys, %d events, findings:\n%s", report.Keys, report.Rows.Log, got)
		}
		if inFlight < runs {
			t.Errorf("only %d keys were seen on their way in %d runs: there was nothing to be mistaken about", inFlight, runs)
		}
		t.Logf("%d runs, %d keys on their way, no finding", runs, inFlight)
	})
}

const (
	slowKeys  = 25
	slowTick  = 100 * time.Millisecond
	slowSent  = 10 // ticks from the commit until an event is marked as sent
	slowReach = 20 // until it is applied
)

// slow is a chain whose events take their time.
type slow struct {
	write, read reconcile.Database
	check       *reconcile.Check
}

func newSlow(t *testing.T, write, read reconcile.Database) *slow {
	exec(t, write,
		"CREATE TABLE w (id {text} NOT NULL PRIMARY KEY, status {text}, version INTEGER NOT NULL)",
		"CREATE TABLE l (id {text} NOT NULL, status {text}, version INTEGER NOT NULL, state {text} NOT NULL, at {time} NOT NULL, PRIMARY KEY (id, version))")
	exec(t, read, "CREATE TABLE r (id {text} NOT NULL PRIMARY KEY, status {text}, version INTEGER NOT NULL)")
	return &slow{write: write, read: read, check: &reconcile.Check{
		Name: "slow", Key: []reconcile.KeyPart{{Name: "id"}}, Compare: []reconcile.Column{{Name: "status"}},
		Write:     &reconcile.Table{Database: "write", Table: "w", Version: "version"},
		Log:       &reconcile.Log{Table: reconcile.Table{Database: "write", Table: "l", Version: "version"}, State: "state", CreatedAt: "at"},
		Read:      &reconcile.Table{Database: "read", Table: "r", Version: "version"},
		Exemption: time.Minute, Deadline: time.Minute, Confirm: []time.Duration{}, ChunkRows: 7,
	}}
}

// deliver commits so many events, one at each tick, and brings all to their end.
func (s *slow) deliver(ctx context.Context, events int) error {
	tick := time.NewTicker(slowTick)
	defer tick.Stop()
	for n := range events + slowReach {
		var err error
		if n < events {
			err = s.commit(ctx, n)
		}
		if sent := n - slowSent; err == nil && sent >= 0 && sent < events {
			_, err = s.write.DB.ExecContext(ctx, fmt.Sprintf("UPDATE l SET state = 'SENT' WHERE id = '%s' AND version = %d", slowKey(sent), slowVersion(sent)))
		}
		if reached := n - slowReach; err == nil && reached >= 0 {
			_, err = s.read.DB.ExecContext(ctx, slowRow("r", reached))
		}
		if err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (s *slow) commit(ctx context.Context, n int) error {
	tx, err := s.write.DB.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	for _, statement := range []string{
		slowRow("w", n),
		fmt.Sprintf("INSERT INTO l VALUES ('%s', 's%d', %d, 'PENDING', CURRENT_TIMESTAMP)", slowKey(n), n, slowVersion(n)),
	} {
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return tx.Commit()
}

func slowKey(n int) string { return fmt.Sprintf("k%02d", n%slowKeys) }

func slowVersion(n int) int { return n/slowKeys + 1 }

// slowRow writes the n-th event's content into a table.
func slowRow(table string, n int) string {
	if slowVersion(n) == 1 {
		return fmt.Sprintf("INSERT INTO %s VALUES ('%s', 's%d', 1)", table, slowKey(n), n)
	}
	return fmt.Sprintf("UPDATE %s SET status = 's%d', version = %d WHERE id = '%s'", table, n, slowVersion(n), slowKey(n))
}
