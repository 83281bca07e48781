package chaos

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	random "math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/outbox"
	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/test/chaos/verdict"
)

const (
	clerks      = 4  // that change accounts at once, each its own
	accounts    = 60 // of all clerks
	poisoned    = 2  // accounts with an event that consumers refuse
	oversized   = 2  // accounts with an event that the broker refuses
	refusedAt   = 3  // the version of that event
	patienceApp = 8 * time.Second
)

func accountName(n int) string {
	switch {
	case n < poisoned:
		return fmt.Sprintf("poison-%02d", n)
	case n < poisoned+oversized:
		return fmt.Sprintf("large-%02d", n)
	}
	return fmt.Sprintf("account-%02d", n)
}

// write changes accounts until ctx ends, and keeps the history.
func write(ctx context.Context, appender store.Appender[store.SQLTx], driver, dsn string) error {
	db, err := sql.Open(driver, dsn)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	db.SetMaxIdleConns(clerks)
	h, err := openHistory(os.Getenv(envHistory))
	if err != nil {
		return err
	}
	seed, err := strconv.ParseUint(os.Getenv(envSeed), 10, 64)
	if err != nil {
		return err
	}
	w := &writer{
		db: db, appender: outbox.NewWriter(appender, nil), history: h, name: os.Getenv(envName),
		numbered: driver == "pgx",
	}
	var all sync.WaitGroup
	for n := range clerks {
		all.Go(func() { w.clerk(ctx, n, random.New(random.NewPCG(seed, uint64(n)))) })
	}
	all.Wait()
	return h.close()
}

type writer struct {
	db       *sql.DB
	appender *outbox.Writer[store.SQLTx]
	history  *history
	name     string
	numbered bool // parameters are $1, $2
}

// clerk changes accounts of its own, one transaction after the other, so that
// none waits for another one of the writer.
func (w *writer) clerk(ctx context.Context, n int, r *random.Rand) {
	for i := 0; ctx.Err() == nil; i++ {
		t := &transaction{writer: w, id: fmt.Sprintf("%s/%d/%d", w.name, n, i), leaves: r.IntN(10) == 0}
		if r.IntN(40) == 0 {
			t.lingers = time.Duration(200+r.IntN(1300)) * time.Millisecond
		}
		for range 1 + r.IntN(3) {
			account := poisoned + oversized + r.IntN(accounts-poisoned-oversized)
			if r.IntN(60) == 0 {
				account = r.IntN(poisoned + oversized)
			}
			account -= account % clerks
			if name := accountName(account + n); !slices.Contains(t.accounts, name) {
				t.accounts = append(t.accounts, name)
			}
		}
		pause := time.Duration(5+r.IntN(20)) * time.Millisecond
		if !t.run() {
			pause += 100 * time.Millisecond
		}
		wait(ctx, pause)
	}
}

func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

type transaction struct {
	*writer
	id       string
	accounts []string
	leaves   bool // ends with ROLLBACK
	lingers  time.Duration
}

// run reports whether the database did as it was told. What it began is ended
// even when the writer is asked to stop.
func (t *transaction) run() bool {
	ctx, cancel := context.WithTimeout(context.Background(), patienceApp)
	defer cancel()
	fail := func(err error) bool {
		t.note(verdict.Failed, nil, err)
		return false
	}
	tx, err := t.db.BeginTx(ctx, nil)
	if err != nil {
		return fail(err)
	}
	defer func() { _ = tx.Rollback() }()
	intents, err := t.change(ctx, tx)
	if err != nil {
		return fail(err)
	}
	if t.lingers > 0 {
		wait(ctx, t.lingers)
	}
	if t.leaves {
		t.note(verdict.Leaving, intents, nil)
		err := tx.Rollback()
		t.note(verdict.RolledBack, nil, err)
		return err == nil
	}
	t.note(verdict.Committing, intents, nil)
	err = tx.Commit()
	switch {
	case err == nil:
		t.note(verdict.OK, nil, nil)
	case refused(err):
		t.note(verdict.Failed, nil, err)
	default:
		t.note(verdict.Unknown, nil, err)
	}
	return err == nil
}

func (t *transaction) note(state verdict.State, events []verdict.Intent, err error) {
	e := verdict.Entry{Tx: t.id, At: time.Now().UnixMicro(), State: state, Events: events}
	if err != nil {
		e.Error, e.Code = err.Error(), code(err)
	}
	t.history.append(e)
}

const updateAccount = `UPDATE account SET version = version + 1, amount = amount + $1 WHERE id = $2`

const selectVersion = `SELECT version FROM account WHERE id = $1`

const updateAccountMySQL = `UPDATE account SET version = version + 1, amount = amount + ? WHERE id = ?`

const selectVersionMySQL = `SELECT version FROM account WHERE id = ?`

// change updates the accounts and appends an event for each.
func (t *transaction) change(ctx context.Context, tx *sql.Tx) ([]verdict.Intent, error) {
	update, read := updateAccount, selectVersion
	if !t.numbered {
		update, read = updateAccountMySQL, selectVersionMySQL
	}
	var intents []verdict.Intent
	var events []waybill.Event
	for _, account := range t.accounts {
		intent := verdict.Intent{ID: waybill.NewID(), Key: account, Type: "AccountChanged", Amount: random.Int64N(1000)}
		result, err := tx.ExecContext(ctx, update, intent.Amount, account)
		if err != nil {
			return nil, err
		}
		if n, err := result.RowsAffected(); err != nil || n != 1 {
			return nil, errors.Join(fmt.Errorf("account %s: %d rows", account, n), err)
		}
		if err := tx.QueryRowContext(ctx, read, account).Scan(&intent.Version); err != nil {
			return nil, err
		}
		padding := 40
		if intent.Version == refusedAt {
			switch accountKind(account) {
			case "poison":
				intent.Type = verdict.Poison
			case "large":
				intent.Type, padding = verdict.TooLarge, maxMessage
			}
		}
		data, err := json.Marshal(map[string]any{"amount": intent.Amount, "padding": noise(padding)})
		if err != nil {
			return nil, err
		}
		intent.Sum = verdict.Sum(data)
		intents = append(intents, intent)
		events = append(events, waybill.Event{
			ID: intent.ID, Type: intent.Type, Topic: topic, AggregateType: "account", AggregateID: account,
			AggregateVersion: intent.Version, Data: data,
		})
	}
	return intents, t.appender.Append(ctx, tx, events...)
}

func accountKind(name string) string { return name[:slices.Index([]byte(name), '-')] }

// noise is text that no compression makes shorter than half.
func noise(n int) string {
	raw := make([]byte, n)
	_, _ = rand.Read(raw)
	return hex.EncodeToString(raw)
}

// refused reports whether a database said that it did not commit. A server that
// is being stopped may say something after it did.
func refused(err error) bool {
	if errors.Is(err, pgx.ErrTxCommitRollback) {
		return true
	}
	c := code(err)
	return len(c) == 5 && (c[:2] == "40" || c[:2] == "23" || c[:2] == "25") || slices.Contains([]string{"1213", "1205", "1062"}, c)
}

// code is what the database calls an error, empty if it did not speak.
func code(err error) string {
	var ofPostgres *pgconn.PgError
	if errors.As(err, &ofPostgres) {
		return ofPostgres.Code
	}
	var ofMySQL *mysql.MySQLError
	if errors.As(err, &ofMySQL) {
		return strconv.Itoa(int(ofMySQL.Number))
	}
	return ""
}

// history is the file of what was meant and what was answered. Lines of several
// clerks go to the disk together.
type history struct {
	file  *os.File
	lines chan line
	done  chan error
}

type line struct {
	text   []byte
	onDisk chan struct{}
}

func openHistory(path string) (*history, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	if _, err := file.WriteString("\n"); err != nil { // the last line of a killed writer may be torn
		return nil, err
	}
	h := &history{file: file, lines: make(chan line, clerks), done: make(chan error, 1)}
	go h.run()
	return h, nil
}

// append returns when the line is on disk. A history that cannot be kept ends
// the process: nothing may be done that it does not know.
func (h *history) append(e verdict.Entry) {
	text, err := json.Marshal(e)
	if err != nil {
		panic(err)
	}
	l := line{append(text, '\n'), make(chan struct{})}
	h.lines <- l
	<-l.onDisk
}

func (h *history) run() {
	for first := range h.lines {
		batch := []line{first}
		for more := true; more; {
			select {
			case l, ok := <-h.lines:
				if more = ok; ok {
					batch = append(batch, l)
				}
			default:
				more = false
			}
		}
		var text []byte
		for _, l := range batch {
			text = append(text, l.text...)
		}
		if _, err := h.file.Write(text); err != nil {
			panic(err)
		}
		if err := h.file.Sync(); err != nil {
			panic(err)
		}
		for _, l := range batch {
			close(l.onDisk)
		}
	}
	h.done <- h.file.Close()
}

func (h *history) close() error {
	close(h.lines)
	return <-h.done
}
