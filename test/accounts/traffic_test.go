package accounts

import (
	"context"
	"database/sql"
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
		runs := 0
		for deadline := time.Now().Add(2 * time.Second); time.Now().Before(deadline) || runs < 5; runs++ {
			report := run(t, check, write, read)
			if report.Differences+report.Unverified > 0 {
				t.Fatalf("run %d:\n%s", runs, report.Text())
			}
		}
		cancel()
		writers.Wait()
		if changes < 50 {
			t.Errorf("only %d changes in %d runs", changes, runs)
		}
	})
}

// change writes a version of a row with its event, and then the read model.
// Every fourth version deletes.
func change(ctx context.Context, write, read reconcile.Database, key string, version int) error {
	kind, status := "changed", fmt.Sprintf("s%d", version)
	sql1 := fmt.Sprintf("INSERT INTO w VALUES ('%s', '%s', %d)", key, status, version)
	sql2 := fmt.Sprintf("INSERT INTO r VALUES ('%s', '%s', %d)", key, status, version)
	switch version % 4 {
	case 0:
		kind = "deleted"
		sql1, sql2 = fmt.Sprintf("DELETE FROM w WHERE id = '%s'", key), fmt.Sprintf("DELETE FROM r WHERE id = '%s'", key)
	case 2, 3:
		set := fmt.Sprintf("status = '%s', version = %d WHERE id = '%s'", status, version, key)
		sql1, sql2 = "UPDATE w SET "+set, "UPDATE r SET "+set
	}
	event := fmt.Sprintf("INSERT INTO l VALUES ('%s', '%s', '%s', %d, CURRENT_TIMESTAMP)", key, kind, status, version)
	tx, err := write.DB.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	statements := []string{sql1, event}
	for _, statement := range statements {
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	_, err = read.DB.ExecContext(ctx, sql2)
	if err == sql.ErrConnDone {
		return nil
	}
	return err
}
