package chaos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/mysql"
	"github.com/waybillhq/waybill/store/postgres"
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

// ofMode are the small acts that only a mode has.
func ofMode(mode string) []string {
	switch mode {
	case modeCDC:
		return []string{loseLog}
	case modeSwitch:
		return []string{loseLog, switchMode, switchMode, switchMode}
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
	countSlots = `SELECT count(*) FROM pg_replication_slots WHERE slot_type = 'logical'`
)

// loseLog drops the slot, whoever reads it.
func (p *pair) loseLog(ctx context.Context) error {
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if err := errors.Join(p.tell(endReaders), p.tell(dropSlots)); err != nil {
			return err
		}
		if n, err := number(ctx, p.shop, countSlots); err == nil && n == 0 {
			return nil
		}
	}
	return errors.New("the slot is read again before it can be dropped")
}

// loseLog removes all of the binary log but its newest file.
func (s *single) loseLog(ctx context.Context) error {
	for _, statement := range []string{`FLUSH BINARY LOGS`, `PURGE BINARY LOGS BEFORE NOW() + INTERVAL 1 DAY`} {
		if _, err := s.admin.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
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
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	what, do := a.what, func() error { return w.db.loseLog(ctx) }
	if a.what == switchMode {
		what += " to " + modeAfter(a)
		do = func() error { return w.db.setMode(ctx, modeAfter(a)) }
	}
	if do() == nil {
		w.count(what)
	}
}

func knownMode(mode string) bool { return slices.Contains(modes, mode) }
