package sqlite_test

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/sqlite"
)

const (
	envChild = "WAYBILL_TEST_CHILD" // name of the child's part
	envFile  = "WAYBILL_TEST_FILE"  // database file
)

// TestMain also is the other process of the tests that need one.
func TestMain(m *testing.M) {
	part := os.Getenv(envChild)
	if part == "" {
		os.Exit(m.Run())
	}
	if err := runChild(part, os.Getenv(envFile)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func runChild(part, path string) error {
	ctx := context.Background()
	st, err := sqlite.Open(ctx, path, nil)
	if err != nil {
		return err
	}
	defer st.Close()
	if err := st.Migrate(ctx, store.MigrateOptions{}); err != nil {
		return err
	}
	switch part {
	case "append":
		return appendFrom(ctx, st, "child", childEvents)
	case "die":
		// Says "ready" with a lease held, a committed event, an event in an open
		// transaction, and an open consumer transaction, and waits to be killed.
		if _, err := st.Claim(ctx, "child", time.Second, store.Lanes); err != nil {
			return err
		}
		if err := appendFrom(ctx, st, "committed", 1); err != nil {
			return err
		}
		tx, err := st.BeginInbox(ctx)
		if err != nil {
			return err
		}
		if _, err := st.Append(ctx, tx.Handle(), []waybill.Event{event("open", "k")}); err != nil {
			return err
		}
		if _, err := tx.MarkConsumed(ctx, store.Consumed{Group: "g", Event: event("received", "k"), Outcome: store.Applied}); err != nil {
			return err
		}
		fmt.Println("ready")
		select {}
	}
	return fmt.Errorf("no part %q", part)
}

const childEvents = 200

// appendFrom appends events one by one, each in a transaction of its own.
func appendFrom(ctx context.Context, st *sqlite.Store, name string, n int) error {
	for i := range n {
		tx, err := st.DB().BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		_, err = st.Append(ctx, tx, []waybill.Event{event(fmt.Sprintf("%s-%d", name, i), name)})
		if err == nil {
			err = tx.Commit()
		}
		if err != nil {
			_ = tx.Rollback()
			return err
		}
	}
	return nil
}

func child(t *testing.T, part, path string) *exec.Cmd {
	t.Helper()
	command := exec.CommandContext(t.Context(), os.Args[0])
	command.Env = append(os.Environ(), envChild+"="+part, envFile+"="+path)
	command.Stderr = os.Stderr
	return command
}

// Two processes append to one file that neither has made before, while this
// one settles what it sees.
func TestTwoProcessesShareAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.db")
	other := child(t, "append", path)
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	st := openFile(t, path, nil)
	ended := make(chan error, 2)
	go func() { ended <- appendFrom(context.Background(), st, "parent", childEvents) }()
	go func() { ended <- other.Wait() }()

	guard := claimAll(t, st, "relay")
	var seen []string
	deadline := time.Now().Add(90 * time.Second)
	for len(seen) < 2*childEvents {
		if time.Now().After(deadline) {
			t.Fatalf("settled %d of %d", len(seen), 2*childEvents)
		}
		rows := hot(t, st)
		if len(rows) == 0 {
			continue
		}
		var changes store.Changes
		for i := range rows {
			seen = append(seen, rows[i].Event.ID)
			changes.Settled = append(changes.Settled, settled(rows[i]))
		}
		if err := st.Apply(t.Context(), guard, changes); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"child", "parent"} {
		next := 0
		for _, id := range seen {
			var n int
			if _, err := fmt.Sscanf(id, name+"-%d", &n); err != nil {
				continue
			}
			if n != next {
				t.Fatalf("%s: event %d was seen where %d was due", name, n, next)
			}
			next++
		}
	}
	slices.Sort(seen)
	if n := len(slices.Compact(seen)); n != 2*childEvents {
		t.Errorf("different events: got %d, want %d", n, 2*childEvents)
	}
}

// A process that is killed leaves nothing half done, and its leases expire.
func TestAKilledProcessLeavesNothingOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.db")
	victim := child(t, "die", path)
	out, err := victim.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("the child says %q, %v", line, err)
	}
	if err := victim.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = victim.Wait()

	st := openFile(t, path, nil)
	rows := hot(t, st)
	if len(rows) != 1 || rows[0].Event.ID != "committed-0" {
		t.Errorf("hot rows: got %+v, want committed-0", rows)
	}
	if found, err := st.FindConsumed(t.Context(), "received"); err != nil || len(found) != 0 {
		t.Errorf("consumed: got %v, %v, want none", found, err)
	}
	deadline := time.Now().Add(60 * time.Second)
	var leases []store.Lease
	for len(leases) < store.Lanes {
		if time.Now().After(deadline) {
			t.Fatalf("only %d lanes came free", len(leases))
		}
		claimed, err := st.Claim(t.Context(), "heir", time.Hour, store.Lanes)
		if err != nil {
			t.Fatal(err)
		}
		leases = append(leases, claimed...)
	}
	for _, lease := range leases {
		if lease.Fence < 2 {
			t.Errorf("lane %d: fence is %d, want more than the child's", lease.Lane, lease.Fence)
		}
	}
}

// A plain handle of the application's, of this driver or of another one, may
// append as well.
func TestAppendWithAnotherHandle(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.db")
	st := openFile(t, path, nil)
	db, err := sql.Open("sqlite", "file:"+path+"?_txlock=immediate&_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	results, err := st.Append(t.Context(), tx, []waybill.Event{event("e1", "a"), event("e1", "a")})
	if err != nil || results[0] != nil || results[1] == nil {
		t.Fatalf("append: got %v, %v, want a duplicate at the end", results, err)
	}
	if rows := hot(t, st); len(rows) != 0 {
		t.Errorf("hot rows before the commit: got %d, want none", len(rows))
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if rows := hot(t, st); len(rows) != 1 {
		t.Errorf("hot rows: got %d, want 1", len(rows))
	}
}
