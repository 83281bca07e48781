package chaos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/waybillhq/waybill/cdc"
	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/mysql"
	"github.com/waybillhq/waybill/store/postgres"
	"github.com/waybillhq/waybill/test/chaos/verdict"
)

// Modes of a run: how its relays learn of events.
const (
	modePoll   = "poll"
	modeCDC    = "cdc"
	modeSwitch = "switch" // from one to the other every few seconds
)

var modes = []string{modePoll, modeCDC, modeSwitch}

// Acts of runs whose relays read the database's log.
const (
	loseLog    = "lose the log"
	switchMode = "switch the mode"
)

// ofMode are the acts that only a mode has.
func ofMode(mode string) []string {
	switch mode {
	case modeCDC:
		return []string{loseLog}
	case modeSwitch:
		return []string{loseLog, switchMode}
	}
	return nil
}

// modeAfter is what relays do after an act that switches.
func modeAfter(a act) string {
	return []string{store.ModePoll, store.ModeCDC}[a.detail%2]
}

const (
	endReaders = `SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_type = 'logical' AND active`
	dropSlots  = `SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_type = 'logical' AND NOT active`
	countSlots = `SELECT count(*) FROM pg_replication_slots WHERE slot_type = 'logical' AND wal_status <> 'lost'`
	writeLog   = `SELECT pg_logical_emit_message(true, 'chaos', repeat('x', 1000))`
	switchFile = `SELECT pg_switch_wal()`
)

// What is done to a log.
const (
	dropSlot    = "drop the slot"
	exceedLimit = "exceed the limit of the log"
	purgeLog    = "purge the log"
)

var errHeld = errors.New("the log is read again before it can be lost")

// loseLog drops the slot, whoever reads it, or makes the server remove what it
// keeps for it. It does neither while the servers change places.
func (p *pair) loseLog(ctx context.Context, detail int) (what string, err error) {
	if !p.mu.TryLock() {
		return "", errors.New("the server is away")
	}
	defer p.mu.Unlock()
	statements := []string{endReaders, dropSlots}
	if what = dropSlot; detail/2%2 == 1 {
		what, statements = exceedLimit, []string{endReaders, writeLog, switchFile, `CHECKPOINT`}
		if err := errors.Join(p.tell(`ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'`), p.tell(`SELECT pg_reload_conf()`)); err != nil {
			return what, err
		}
		defer func() {
			_ = errors.Join(p.tell(`ALTER SYSTEM RESET max_slot_wal_keep_size`), p.tell(`SELECT pg_reload_conf()`))
		}()
	}
	if n, err := number(ctx, p.shop, countSlots); err != nil || n == 0 {
		return what, errors.Join(errors.New("no log is kept"), err)
	}
	for end := time.Now().Add(8 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		for _, statement := range statements {
			if err := p.tell(statement); err != nil {
				return what, err
			}
		}
		if n, err := number(ctx, p.shop, countSlots); err == nil && n == 0 {
			return what, nil
		}
	}
	return what, errHeld
}

const (
	listReaders  = `SELECT id FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'`
	countReaders = `SELECT COUNT(*) FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'`
	executed     = `SELECT @@GLOBAL.gtid_executed`
	notPurged    = `SELECT LENGTH(GTID_SUBTRACT(?, @@GLOBAL.gtid_purged))`
)

// loseLog ends the readers and removes all of the binary log but its newest file,
// with transactions that none of them has read.
func (s *single) loseLog(ctx context.Context, _ int) (what string, err error) {
	for end := time.Now().Add(8 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if err := s.endReaders(ctx); err != nil {
			return purgeLog, err
		}
		// One that is ended goes on for a moment.
		var readers int
		if readers, err = number(ctx, s.admin, countReaders); err != nil || readers > 0 {
			continue
		}
		var before string
		var rest int
		err := errors.Join(s.do(ctx, `CREATE DATABASE IF NOT EXISTS unread`), s.do(ctx, `DROP DATABASE unread`),
			s.admin.QueryRowContext(ctx, executed).Scan(&before),
			s.do(ctx, `FLUSH BINARY LOGS`), s.do(ctx, `PURGE BINARY LOGS BEFORE NOW() + INTERVAL 1 DAY`),
			s.admin.QueryRowContext(ctx, notPurged, before).Scan(&rest))
		if err != nil {
			return purgeLog, err
		}
		if readers, err = number(ctx, s.admin, countReaders); err == nil && readers == 0 && rest == 0 {
			return purgeLog, nil
		}
	}
	return purgeLog, errors.Join(errHeld, err)
}

func (s *single) endReaders(ctx context.Context) error {
	rows, err := s.admin.QueryContext(ctx, listReaders)
	if err != nil {
		return err
	}
	defer rows.Close()
	var all []int64
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			return err
		}
		all = append(all, id)
	}
	for _, id := range all {
		_ = s.do(ctx, fmt.Sprintf(`KILL %d`, id)) // it may have gone
	}
	return rows.Err()
}

func (s *single) do(ctx context.Context, statement string) error {
	if _, err := s.admin.ExecContext(ctx, statement); err != nil {
		return fmt.Errorf("%s: %w", statement, err)
	}
	return nil
}

func (p *pair) setMode(ctx context.Context, mode string) error {
	st, err := postgres.Open(ctx, p.direct("shop"), nil)
	if err != nil {
		return err
	}
	defer func() { _ = st.Close() }()
	return st.SetMode(ctx, store.Action{Actor: "chaos", Reason: "the plan says so"}, mode)
}

func (s *single) setMode(ctx context.Context, mode string) error {
	st, err := mysql.Open(ctx, s.direct("shop"), nil)
	if err != nil {
		return err
	}
	defer func() { _ = st.Close() }()
	return st.SetMode(ctx, store.Action{Actor: "chaos", Reason: "the plan says so"}, mode)
}

// actOnLog does one of the acts of this file. The database may be away: then
// there is nothing to lose or to switch.
func (w *town) actOnLog(a act) {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	if a.what == switchMode {
		if w.db.setMode(ctx, modeAfter(a)) == nil {
			w.count(a.what + " to " + modeAfter(a))
		}
		return
	}
	what, err := w.db.loseLog(ctx, a.detail)
	if err != nil {
		w.t.Logf("not lost: %s: %v", what, err)
		return
	}
	w.count(what)
}

// losses are the states that relays have named of logs that were lost, with how
// often each was.
func (w *town) losses() map[cdc.State]int {
	named := make(map[cdc.State]int)
	for _, state := range []cdc.State{cdc.LostSlot, cdc.WALRemoved, cdc.BinlogPurged, cdc.PositionUnknown} {
		for _, p := range w.posts {
			if n := p.count("state=" + string(state)); n > 0 {
				named[state] += n
			}
		}
	}
	return named
}

// logged fails a run in which the log was not read, or was lost and no relay said so.
func (w *town) logged(seen *verdict.Seen) {
	w.t.Helper()
	n := told(seen)
	switch {
	case *mode == modePoll && n > 0:
		w.t.Errorf("the log has told of %d events, and nobody was to read it", n)
	case *mode == modeSwitch && n == 0, *mode == modeCDC && n < len(seen.Facts)/10:
		w.t.Errorf("in mode %s the log has told of %d events of %d: too few to prove anything", *mode, n, len(seen.Facts))
	}
	lost, named := 0, 0
	for _, what := range []string{dropSlot, exceedLimit, purgeLog} {
		lost += w.done[what]
	}
	for _, count := range w.losses() {
		named += count
	}
	if *mode == modeCDC && (lost == 0 || named == 0) {
		w.t.Errorf("the log was lost %d times, relays have said so %d times", lost, named)
	}
}

func knownMode(mode string) bool { return slices.Contains(modes, mode) }
