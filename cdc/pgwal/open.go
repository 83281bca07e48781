package pgwal

import (
	"context"
	"fmt"
	"net"
	"strconv"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/waybillhq/waybill/cdc"
)

// Open begins to read behind a position, or at the place that the slot keeps if
// that is further on: what lies between was acknowledged, or is of no concern.
// Without a slot, and without a position, it makes one first.
func (s *Source) Open(ctx context.Context, from cdc.Position) (cdc.Stream, error) {
	found, err := s.look(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.checkServer(found); err != nil {
		return nil, err
	}
	t, err := s.findTable(ctx)
	if err != nil {
		return nil, err
	}
	start, err := s.start(found, from)
	if err != nil {
		return nil, err
	}
	if found.slot == nil || start == 0 {
		if found, err = s.renew(ctx, found); err != nil {
			return nil, err
		}
	}
	kept, err := pglogrepl.ParseLSN(found.slot.Confirmed)
	if err != nil {
		return nil, cdc.Busy(fmt.Errorf("the slot %s is being made", s.config.Slot))
	}
	return s.follow(ctx, t, max(start, kept), found)
}

// start is where to begin, or why that cannot be. 0 means: with a new slot.
func (s *Source) start(found server, from cdc.Position) (pglogrepl.LSN, error) {
	slot := found.slot
	if slot == nil {
		if from != "" {
			return 0, cdc.Lost(cdc.LostSlot, fmt.Errorf("slot %s: %w", s.config.Slot, errNoSlot), "somebody dropped it, or the server was restored or failed over without it")
		}
		return 0, nil
	}
	if reason := slot.foreign(found.database); reason != "" {
		return 0, s.foreignSlot(reason)
	}
	if slot.Active {
		if s.isMaking(slot.ActivePID) {
			return 0, nil
		}
		return 0, s.busy(found)
	}
	if reason := slot.lost(); reason != "" {
		if from != "" {
			return 0, cdc.Lost(cdc.WALRemoved, fmt.Errorf("slot %s: %s", s.config.Slot, reason), slot.hintOfLoss())
		}
		return 0, nil
	}
	if cause := s.isStuck(); cause != nil {
		if from != "" {
			return 0, cause
		}
		return 0, nil
	}
	if from == "" {
		return pglogrepl.ParseLSN(slot.Confirmed)
	}
	start, err := parsePosition(from)
	if err == nil && start > found.end {
		err = fmt.Errorf("position %s is beyond the end of the log, %s", from, position(found.end))
	}
	if err != nil {
		return 0, cdc.Lost(cdc.PositionUnknown, err, "the position is of another server, or of one that was restored since")
	}
	return start, nil
}

func (s *Source) busy(found server) error {
	holder := found.holder
	if holder == "" {
		holder = "pid " + strconv.Itoa(found.slot.ActivePID)
	}
	return cdc.Busy(fmt.Errorf("the slot %s is read by %s", s.config.Slot, holder))
}

// renew makes a slot, in the place of one that is of no more use.
func (s *Source) renew(ctx context.Context, found server) (server, error) {
	if found.slot != nil && !s.isMaking(found.slot.ActivePID) {
		if err := s.drop(ctx); err != nil {
			return found, err
		}
	}
	if err := s.create(ctx); err != nil {
		return found, err
	}
	s.unstick()
	found, err := s.look(ctx)
	if err == nil && found.slot == nil {
		err = cdc.Lost(cdc.LostSlot, fmt.Errorf("slot %s: %w", s.config.Slot, errNoSlot), "somebody dropped it at once")
	}
	return found, err
}

// follow opens the connection of a stream.
func (s *Source) follow(ctx context.Context, t table, start pglogrepl.LSN, found server) (cdc.Stream, error) {
	config, log := s.replication.Copy(), (*cdc.GatherConn)(nil)
	config.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := s.replication.DialFunc(ctx, network, address)
		if err != nil {
			return nil, err
		}
		log = &cdc.GatherConn{Conn: conn}
		return log, nil
	}
	conn, err := pgconn.ConnectConfig(ctx, config)
	if err != nil {
		return nil, s.classifyStart("connect for replication", err)
	}
	if s.config.Failover && !found.slot.Failover {
		_, err = conn.Exec(ctx, "ALTER_REPLICATION_SLOT "+quoteIdentifier(s.config.Slot)+" (FAILOVER true)").ReadAll()
	}
	if err == nil {
		err = pglogrepl.StartReplication(ctx, conn, quoteIdentifier(s.config.Slot), start, pglogrepl.StartReplicationOptions{
			Mode: pglogrepl.LogicalReplication,
			PluginArgs: []string{
				"proto_version '1'",
				"publication_names " + quoteOption(quoteIdentifier(s.config.Publication)),
				"messages 'true'",
			},
		})
	}
	if err != nil {
		abandon(conn)
		return nil, s.classifyStart("start replication", err)
	}
	log.Gather()
	return s.newStream(conn, t, start), nil
}

// classifyStart says what a refusal to start means for a slot that was seen just
// before.
func (s *Source) classifyStart(op string, err error) error {
	text := fmt.Errorf("%s of slot %s: %w", op, s.config.Slot, err)
	switch codeOf(err) {
	case codeUndefinedObject:
		return cdc.Lost(cdc.LostSlot, text, "somebody dropped it")
	case codeUndefinedFile:
		return cdc.Lost(cdc.WALRemoved, text, new(slot).hintOfLoss())
	case codeNoRight:
		return cdc.Refused(cdc.Misconfigured, text, hintReplication)
	case codeProtocol:
		return cdc.Refused(cdc.Misconfigured, text, hintDirect)
	}
	return classify(op+" of slot "+s.config.Slot, err)
}

// stuck remembers at which place streams have ended with an error of decoding.
type stuck struct {
	at    pglogrepl.LSN
	times int
	cause error // why the place cannot be passed; nil if it may be
}

// stuckAfter is how often decoding may fail at one place. A server may run out of
// something, so that once means nothing; what fails each time would fail for ever.
const stuckAfter = 3

// ended judges the error that a stream ended with, at the place up to which it
// was acknowledged.
func (s *Source) ended(err error, at pglogrepl.LSN) error {
	code := codeOf(err)
	if len(code) != codeLen {
		return classify("read the log", err)
	}
	switch code[:2] {
	case classOfIntervention, classOfConnections, classOfLackOfRoom:
		return classify("read the log", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stuck.at != at {
		s.stuck = stuck{at: at}
	}
	s.stuck.times++
	text := fmt.Errorf("read the log of slot %s: %w", s.config.Slot, err)
	switch {
	case code == codeUndefinedFile:
		return cdc.Lost(cdc.WALRemoved, text, new(slot).hintOfLoss())
	case code == codeUndefinedObject:
		// The publication is looked up as it was at the place that is read, and the
		// slot's place is before it was made.
		s.stuck.cause = cdc.Lost(cdc.PositionUnknown, text, "the publication was made after the place that the slot keeps")
	case s.stuck.times >= stuckAfter:
		s.stuck.cause = cdc.Lost(cdc.PositionUnknown, text, "the server cannot decode its log at this place")
	default:
		return cdc.Refused(cdc.Unreachable, text, "")
	}
	return s.stuck.cause
}

func (s *Source) isStuck() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stuck.cause
}

func (s *Source) unstick() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stuck = stuck{}
}
