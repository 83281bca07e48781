package accounts

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/waybillhq/waybill/reconcile"
)

// TestLiveTrafficHasNoFinding compares while rows change, appear and vanish,
// with their events in the same transactions and the read model right behind,
// and without a second look that would hide a wrong first one.
func TestLiveTrafficHasNoFinding(t *testing.T) {
	eachPair(t, func(t *testing.T, write, read reconcile.Database) {
		exec(t, write,
			"CREATE TABLE w (id {text} NOT NULL PRIMARY KEY, status {text}, version INTEGER NOT NULL)",
			"CREATE TABLE l (id {text} NOT NULL, kind {text} NOT NULL, status {text}, version INTEGER NOT NULL, at {time} NOT NULL, PRIMARY KEY (id, version))")
		exec(t, read, "CREATE TABLE r (id {text} NOT NULL PRIMARY KEY, status {text}, version INTEGER NOT NULL)")
		check := &reconcile.Check{
			Name: "traffic", Key: []reconcile.KeyPart{{Name: "id"}}, Compare: []reconcile.Column{{Name: "status"}},
			Write:   &reconcile.Table{Database: "write", Table: "w", Version: "version"},
			Log:     &reconcile.Log{Table: reconcile.Table{Database: "write", Table: "l", Version: "version"}, CreatedAt: "at", Type: "kind", Deletes: []string{"deleted"}},
			Read:    &reconcile.Table{Database: "read", Table: "r", Version: "version"},
			Confirm: []time.Duration{}, ChunkRows: 3,
		}
		ctx, cancel := context.WithCancel(t.Context())
		var writers sync.WaitGroup
		defer writers.Wait()
		defer cancel()
		var mu sync.Mutex
		changes := 0
		for worker := range 2 {
			writers.Go(func() {
				for i := 0; ctx.Err() == nil; i++ {
					key := fmt.Sprintf("k%d-%d", worker, i%8)
					if err := change(ctx, write, read, key, i/8+1); err != nil && ctx.Err() == nil {
						t.Error(err)
						return
					}
					mu.Lock()
					changes++
					mu.Unlock()
				}
			})
		}
		enough := func() bool {
			mu.Lock()
			defer mu.Unlock()
			return changes >= 50 || t.Failed()
		}
		runs := 0
		for least := time.Now().Add(2 * time.Second); time.Now().Before(least) || runs < 5 || !enough(); runs++ {
			report := run(t, check, write, read)
			if report.Differences+report.Unverified > 0 {
				t.Fatalf("run %d:\n%s", runs, report.Text())
			}
		}
		cancel()
		writers.Wait()
	})
}

// change writes a version of a row with its event, and then the read model.
// Every fourth version deletes.
func change(ctx context.Context, write, read reconcile.Database, key string, version int) error {
	kind, status := "changed", fmt.Sprintf("s%d", version)
	row := fmt.Sprintf("INSERT INTO w VALUES ('%s', '%s', %d)", key, status, version)
	model := fmt.Sprintf("INSERT INTO r VALUES ('%s', '%s', %d)", key, status, version)
	switch version % 4 {
	case 0:
		kind = "deleted"
		row, model = fmt.Sprintf("DELETE FROM w WHERE id = '%s'", key), fmt.Sprintf("DELETE FROM r WHERE id = '%s'", key)
	case 2, 3:
		set := fmt.Sprintf("status = '%s', version = %d WHERE id = '%s'", status, version, key)
		row, model = "UPDATE w SET "+set, "UPDATE r SET "+set
	}
	event := fmt.Sprintf("INSERT INTO l VALUES ('%s', '%s', '%s', %d, CURRENT_TIMESTAMP)", key, kind, status, version)
	tx, err := write.DB.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	statements := []string{row, event}
	for _, statement := range statements {
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	_, err = read.DB.ExecContext(ctx, model)
	return err
}

// TestARebuildLetsTheConsumerGoOn rebuilds again and again beside a consumer
// that applies events by version. When all is quiet the two agree with the log.
func TestARebuildLetsTheConsumerGoOn(t *testing.T) {
	eachPair(t, func(t *testing.T, write, read reconcile.Database) {
		exec(t, write, "CREATE TABLE l (id {text} NOT NULL, kind {text} NOT NULL, status {text}, version INTEGER NOT NULL, PRIMARY KEY (id, version))")
		exec(t, read, "CREATE TABLE r (id {text} NOT NULL PRIMARY KEY, status {text}, version INTEGER NOT NULL)")
		check := &reconcile.Check{
			Name: "rebuild", Key: []reconcile.KeyPart{{Name: "id"}}, Compare: []reconcile.Column{{Name: "status"}},
			Log:     &reconcile.Log{Table: reconcile.Table{Database: "write", Table: "l", Version: "version"}, Type: "kind", Deletes: []string{"deleted"}},
			Read:    &reconcile.Table{Database: "read", Table: "r", Version: "version"},
			Confirm: []time.Duration{}, ChunkRows: 3,
		}
		var consumer sync.WaitGroup
		consumed := make(chan struct{})
		consumer.Go(func() {
			defer close(consumed)
			for i := range 160 {
				key, version := fmt.Sprintf("k%d", i%5), i/5+1
				if err := consume(t.Context(), write, read, key, version); err != nil {
					t.Errorf("%s v%d: %v", key, version, err)
					return
				}
			}
		})
		for quiet := false; !quiet; {
			select {
			case <-consumed:
				quiet = true
			default:
			}
			if _, err := engine(t, check, write, read).Rebuild(t.Context(), nil); err != nil {
				t.Error(err)
				break
			}
		}
		consumer.Wait()
		if report := run(t, check, write, read); listed(report) != "" {
			t.Errorf("in the end:\n%s", report.Text())
		}
	})
}

// consume writes an event and applies it as a consumer with a version gate
// does: only what is newer, and an insert that lost a race is an update.
func consume(ctx context.Context, write, read reconcile.Database, key string, version int) error {
	kind, status := "changed", fmt.Sprintf("s%d", version)
	if version%3 == 0 {
		kind = "deleted"
	}
	if _, err := write.DB.ExecContext(ctx, fmt.Sprintf("INSERT INTO l VALUES ('%s', '%s', '%s', %d)", key, kind, status, version)); err != nil {
		return err
	}
	if kind == "deleted" {
		_, err := read.DB.ExecContext(ctx, fmt.Sprintf("DELETE FROM r WHERE id = '%s' AND version < %d", key, version))
		return err
	}
	update := fmt.Sprintf("UPDATE r SET status = '%s', version = %d WHERE id = '%s' AND version < %d", status, version, key, version)
	result, err := read.DB.ExecContext(ctx, update)
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); err != nil || n == 1 {
		return err
	}
	if _, err := read.DB.ExecContext(ctx, fmt.Sprintf("INSERT INTO r VALUES ('%s', '%s', %d)", key, status, version)); err != nil {
		_, err = read.DB.ExecContext(ctx, update)
		return err
	}
	return nil
}
