package blocking

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/waybillhq/waybill"
)

const (
	topic    = "accounts"
	workers  = 8
	accounts = 64 // of all workers together: none waits for another one's
)

// The application has several workers, each with a session and accounts of its
// own, that change a row and append its event.
type application struct {
	*database
	payload []byte
}

// load says how much the application does.
type load struct {
	transactions int           // of each worker
	every        time.Duration // between the starts of two of a worker; 0 is at once
}

// outcome of a run.
type outcome struct {
	took   []time.Duration // from the moment a transaction was due to its end
	events int
	errs   []error
}

// run works until all is done; at most one error of each worker is kept.
func (a *application) run(ctx context.Context, l load) outcome {
	results := make([]outcome, workers)
	var group sync.WaitGroup
	sessions := make(chan string, workers)
	for w := range workers {
		group.Go(func() { results[w] = a.work(ctx, w, l, sessions) })
	}
	watched, stop := context.WithCancel(ctx)
	waits := make(chan error, 1)
	go func() { waits <- a.watch(watched, sessions) }()
	group.Wait()
	stop()
	var all outcome
	for _, r := range results {
		all.took = append(all.took, r.took...)
		all.events += r.events
		all.errs = append(all.errs, r.errs...)
	}
	if err := <-waits; err != nil {
		all.errs = append(all.errs, err)
	}
	return all
}

func (a *application) work(ctx context.Context, worker int, l load, sessions chan<- string) (out outcome) {
	fail := func(err error) outcome {
		out.errs = append(out.errs, err)
		return out
	}
	begin := func(ctx context.Context) (*sql.Tx, error) { return a.app.BeginTx(ctx, nil) }
	if a.session != "" { // a database with one writer has one connection, too, for all workers
		conn, err := a.app.Conn(ctx)
		if err != nil {
			return fail(err)
		}
		defer func() { _ = conn.Close() }()
		var id string
		if err := conn.QueryRowContext(ctx, a.session).Scan(&id); err != nil {
			return fail(err)
		}
		sessions <- id
		begin = func(ctx context.Context) (*sql.Tx, error) { return conn.BeginTx(ctx, nil) }
	}
	due := time.Now().Add(l.every * time.Duration(worker) / workers)
	for n := range l.transactions {
		if wait := time.Until(due); wait > 0 {
			time.Sleep(wait)
		}
		began := time.Now()
		if l.every > 0 {
			began, due = due, due.Add(l.every)
		}
		if err := a.transaction(ctx, begin, worker, n); err != nil {
			return fail(fmt.Errorf("worker %d, transaction %d: %w", worker, n, err))
		}
		out.took = append(out.took, time.Since(began))
		out.events++
	}
	return out
}

const updateSQL = "UPDATE account SET balance = balance + 1, version = version + 1 WHERE id = ?"

const versionSQL = "SELECT version FROM account WHERE id = ?"

func (a *application) transaction(ctx context.Context, begin func(context.Context) (*sql.Tx, error), worker, n int) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	tx, err := begin(ctx)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	defer func() { _ = tx.Rollback() }()
	account := n*workers%accounts + worker
	if _, err := tx.ExecContext(ctx, a.rebind(updateSQL), account); err != nil {
		return fmt.Errorf("update: %w", err)
	}
	event := waybill.Event{
		ID: waybill.NewID(), Type: "account.changed", Topic: topic, AggregateType: "account", AggregateID: fmt.Sprint(account), Data: a.payload,
	}
	if err := tx.QueryRowContext(ctx, a.rebind(versionSQL), account).Scan(&event.AggregateVersion); err != nil {
		return fmt.Errorf("select: %w", err)
	}
	if n%2 == 0 { // ids of both kinds
		event.ID = waybill.KeyID("", event.AggregateType, event.AggregateID, event.AggregateVersion, event.Type)
	}
	if err := a.writer.Append(ctx, tx, event); err != nil {
		return fmt.Errorf("append: %w", err)
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}

// watch looks for workers that wait for a lock; each has accounts of its own, so
// they can wait for us alone.
func (a *application) watch(ctx context.Context, sessions <-chan string) error {
	if a.waits == nil {
		<-ctx.Done()
		return nil
	}
	var known []string
	for ctx.Err() == nil {
		for len(sessions) > 0 {
			known = append(known, <-sessions)
		}
		if len(known) > 0 {
			waiting, err := a.texts(ctx, a.waits(known))
			if err != nil && ctx.Err() == nil {
				return err
			}
			if len(waiting) > 0 {
				return errors.New("the application was seen waiting for a lock: " + strings.Join(waiting, "; "))
			}
		}
		time.Sleep(5 * time.Millisecond)
	}
	return nil
}

func (o outcome) check(tb testing.TB) {
	tb.Helper()
	for _, err := range o.errs {
		tb.Errorf("the application failed: %v", err)
	}
}
