package pgwal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/waybillhq/waybill/cdc"
)

// versionOfFailover is the first server_version_num with slots that fail over.
const versionOfFailover = 170000

// server is what one look at it shows.
type server struct {
	version    int
	recovering bool
	walLevel   string
	database   string
	end        pglogrepl.LSN
	at         time.Time // the server's clock
	keepMB     int64     // max_slot_wal_keep_size; negative means no limit
	idleLimit  time.Duration
	average    float64 // bytes of log a second since its statistics were reset
	slot       *slot
	holder     string
}

// slot is a row of pg_replication_slots. Older servers lack the last columns.
type slot struct {
	Plugin       string  `json:"plugin"`
	Database     string  `json:"database"`
	Temporary    bool    `json:"temporary"`
	Active       bool    `json:"active"`
	ActivePID    int     `json:"active_pid"`
	Restart      string  `json:"restart_lsn"`
	Confirmed    string  `json:"confirmed_flush_lsn"`
	WALStatus    string  `json:"wal_status"`
	SafeSize     *int64  `json:"safe_wal_size"`
	Invalidation string  `json:"invalidation_reason"` // 17
	Inactive     *string `json:"inactive_since"`      // 17
	Failover     bool    `json:"failover"`            // 17
	Synced       bool    `json:"synced"`              // 17
}

// The slot comes as JSON because its columns depend on the version.
const lookSQL = `
SELECT current_setting('server_version_num')::integer, pg_is_in_recovery(), current_setting('wal_level'), current_database(),
       (CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END)::text,
       clock_timestamp(),
       COALESCE((SELECT setting::bigint FROM pg_settings WHERE name = 'max_slot_wal_keep_size'), -1),
       COALESCE((SELECT extract(epoch FROM current_setting('idle_replication_slot_timeout', true)::interval)::bigint), 0),
       COALESCE((SELECT wal_bytes / NULLIF(extract(epoch FROM clock_timestamp() - stats_reset), 0) FROM pg_stat_wal), 0)::float8,
       COALESCE((SELECT row_to_json(s)::text FROM pg_replication_slots s WHERE s.slot_name = $1), ''),
       COALESCE((SELECT 'pid ' || a.pid || COALESCE(' of ' || host(a.client_addr), '')
                 FROM pg_replication_slots s JOIN pg_stat_activity a ON a.pid = s.active_pid WHERE s.slot_name = $1), '')`

func (s *Source) look(ctx context.Context) (found server, err error) {
	var end, row string
	var idle int64
	err = s.pool.QueryRow(ctx, s.sql(lookSQL), s.config.Slot).Scan(&found.version, &found.recovering, &found.walLevel, &found.database,
		&end, &found.at, &found.keepMB, &idle, &found.average, &row, &found.holder)
	if err == nil {
		found.end, err = pglogrepl.ParseLSN(end)
	}
	if err == nil && row != "" {
		found.slot = new(slot)
		err = json.Unmarshal([]byte(row), found.slot)
	}
	found.idleLimit = time.Duration(idle) * time.Second
	return found, classify("look at the server", err)
}

// lost says why the log has no longer what the slot needs; empty where it has.
func (slot *slot) lost() string {
	switch {
	case slot.Invalidation != "" && slot.Invalidation != "wal_removed":
		return "invalidated: " + slot.Invalidation
	case slot.WALStatus == "lost", slot.Invalidation != "":
		return "what it needs of the log was removed"
	}
	return ""
}

// foreign says why the slot cannot be ours; empty where it can.
func (slot *slot) foreign(database string) string {
	switch {
	case slot.Plugin != plugin:
		return fmt.Sprintf("is not of %s", plugin)
	case slot.Database != database:
		return "is of the database " + slot.Database
	case slot.Temporary:
		return "is temporary"
	}
	return ""
}

// hintOfLoss says how it can be kept from happening again.
func (slot *slot) hintOfLoss() string {
	switch slot.Invalidation {
	case "idle_timeout":
		return "nobody read for longer than idle_replication_slot_timeout: raise it, or keep a relay running"
	case "wal_level_insufficient":
		return "set wal_level to logical again"
	}
	return "the relay was away for longer than max_slot_wal_keep_size allows: raise it, or keep a relay running"
}

const plugin = "pgoutput"

const createSlotSQL = `SELECT pg_create_logical_replication_slot($1, 'pgoutput')`

const noticeDeathSQL = `SET client_connection_check_interval = '5s'`

const createFailoverSlotSQL = `SELECT pg_create_logical_replication_slot($1, 'pgoutput', failover => true)`

// making is a slot that is being made. That takes until every transaction has
// ended that was open at its beginning, so it outlives the call of Open that began
// it: beginning anew each time might never succeed.
type making struct {
	done chan struct{}
	err  error
	pid  uint32
}

// create returns when the slot has been made, or says after a while what it waits for.
func (s *Source) create(ctx context.Context) error {
	m, err := s.begin(ctx)
	if err != nil {
		return err
	}
	watch := s.watchBlockers(ctx, m.pid)
	ctx, cancel := context.WithTimeout(ctx, s.config.SlotWait)
	defer cancel()
	select {
	case <-m.done:
		watch.stop()
	case <-ctx.Done():
		if blockers := watch.stop(); blockers != "" {
			return cdc.Refused(cdc.Blocked, fmt.Errorf("create the slot %s: %s", s.config.Slot, blockers),
				"a new slot waits for the transactions that are open: end them, or wait")
		}
		return classify("create the slot "+s.config.Slot, ctx.Err())
	}
	if codeOf(m.err) == codeDuplicateObject {
		return cdc.Busy(m.err) // another process was faster
	}
	if m.err == nil {
		s.config.Logger.InfoContext(ctx, "replication slot created", "slot", s.config.Slot)
	}
	if codeOf(m.err) == codeNoRight {
		return cdc.Refused(cdc.Misconfigured, fmt.Errorf("create the slot %s: %w", s.config.Slot, m.err), hintReplication)
	}
	return classify("create the slot "+s.config.Slot, m.err)
}

// begin starts to make the slot, unless that goes on already.
func (s *Source) begin(ctx context.Context) (*making, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.making != nil {
		return s.making, nil
	}
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return nil, classify("create the slot", err)
	}
	m := &making{done: make(chan struct{}), pid: conn.Conn().PgConn().PID()}
	// A process that died while it waited would keep the half-made slot. Where the
	// server cannot look after its clients, that is how it is.
	_, _ = conn.Exec(ctx, noticeDeathSQL)
	text := s.sql(createSlotSQL)
	if s.config.Failover {
		text = s.sql(createFailoverSlotSQL)
	}
	s.making = m
	s.running.Go(func() {
		defer close(m.done)
		_, m.err = conn.Exec(s.background, text, s.config.Slot)
		conn.Release()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.making = nil
	})
	return m, nil
}

// isMaking reports whether the process of the server is one of this source, and
// makes the slot.
func (s *Source) isMaking(pid int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.making != nil && int(s.making.pid) == pid
}

const dropSlotSQL = `SELECT pg_drop_replication_slot($1)`

// drop removes the slot.
func (s *Source) drop(ctx context.Context) error {
	_, err := s.pool.Exec(ctx, s.sql(dropSlotSQL), s.config.Slot)
	if codeOf(err) == codeUndefinedObject {
		return nil
	}
	if err == nil {
		s.config.Logger.InfoContext(ctx, "replication slot dropped", "slot", s.config.Slot)
	}
	return classify("drop the slot "+s.config.Slot, err)
}

// Drop removes the slot, so that the server no longer keeps its log for it. The
// publication stays: it costs nothing.
func (s *Source) Drop(ctx context.Context) error {
	found, err := s.look(ctx)
	if err != nil || found.slot == nil {
		return err
	}
	if reason := found.slot.foreign(found.database); reason != "" {
		return s.foreignSlot(reason)
	}
	return s.drop(ctx)
}

func (s *Source) foreignSlot(reason string) error {
	return cdc.Refused(cdc.Misconfigured, fmt.Errorf("the slot %s %s", s.config.Slot, reason), "choose another name for the slot")
}

// Prepared transactions show as the process 0.
const blockersSQL = `
SELECT 'pid ' || a.pid || COALESCE(' of ' || NULLIF(a.usename::text, ''), '') || COALESCE(' (' || NULLIF(a.application_name, '') || ')', '') ||
       COALESCE(', ' || a.state, '') || COALESCE(', in a transaction for ' || extract(epoch FROM clock_timestamp() - a.xact_start)::integer || ' s', '')
FROM unnest(pg_blocking_pids($1)) AS b (pid)
JOIN pg_stat_activity a ON a.pid = b.pid
UNION ALL
SELECT 'prepared transaction ' || p.gid || ' of ' || p.owner || ', for ' || extract(epoch FROM clock_timestamp() - p.prepared)::integer || ' s'
FROM pg_prepared_xacts p
WHERE 0 = ANY (pg_blocking_pids($1))
LIMIT 5`

// watch looks again and again who keeps a process waiting.
type watch struct {
	cancel context.CancelFunc
	done   chan struct{}
	last   string
}

const watchEvery = 200 * time.Millisecond

func (s *Source) watchBlockers(ctx context.Context, pid uint32) *watch {
	ctx, cancel := context.WithCancel(ctx)
	w := &watch{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		for wait(watchEvery, ctx.Done(), nil); ctx.Err() == nil; wait(watchEvery, ctx.Done(), nil) {
			rows, err := s.pool.Query(ctx, s.sql(blockersSQL), pid)
			if err != nil {
				continue
			}
			if found, err := pgx.CollectRows(rows, pgx.RowTo[string]); err == nil && len(found) > 0 {
				w.last = "it waits for " + strings.Join(found, "; ")
			}
		}
	}()
	return w
}

// stop returns who was seen last, or nothing.
func (w *watch) stop() string {
	w.cancel()
	<-w.done
	return w.last
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

var errNoSlot = errors.New("there is no such replication slot")
