package pgwal

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/waybillhq/waybill/cdc"
)

// The attribute REPLICATION, or the roles that managed servers have for it.
const readRoleSQL = `
SELECT current_user::text,
       EXISTS (SELECT FROM pg_roles r WHERE r.rolname = current_user AND (r.rolreplication OR r.rolsuper))
       OR EXISTS (SELECT FROM pg_roles r WHERE r.rolname IN ('rds_replication', 'alloydbreplica', 'azure_pg_admin') AND pg_has_role(current_user, r.oid, 'MEMBER'))`

// Check examines what streams need, for the doctor.
func (s *Source) Check(ctx context.Context) []cdc.Check {
	found, err := s.look(ctx)
	if err != nil {
		return []cdc.Check{answer("reachable", "", err)}
	}
	checks := []cdc.Check{
		answer("wal_level", found.walLevel, s.checkServer(found)),
		s.checkRole(ctx),
		s.checkPublished(ctx),
		s.checkSlot(found),
		s.checkLimit(found),
	}
	return append(checks, s.checkSync(ctx))
}

func (s *Source) checkRole(ctx context.Context) cdc.Check {
	var role string
	var may bool
	if err := s.pool.QueryRow(ctx, s.sql(readRoleSQL)).Scan(&role, &may); err != nil {
		return answer("privileges", "", classify("read the role", err))
	}
	if !may {
		return cdc.Check{Name: "privileges", Detail: "the account " + role + " may not replicate", Hint: "ALTER ROLE " + quoteIdentifier(role) + " REPLICATION"}
	}
	return cdc.Check{Name: "privileges", OK: true, Detail: "the account " + role + " may replicate"}
}

func (s *Source) checkPublished(ctx context.Context) cdc.Check {
	t, err := s.findTable(ctx)
	if err != nil {
		return answer("publication", "", err)
	}
	p, err := s.readPublication(ctx, t)
	if err == nil && p == nil {
		return cdc.Check{Name: "publication", OK: true, Detail: "none yet: the first relay makes " + s.config.Publication}
	}
	if err == nil {
		err = s.checkPublication(t, p)
	}
	if err == nil && !p.truncates {
		return cdc.Check{Name: "publication", OK: true, Detail: s.config.Publication + ", without TRUNCATE: nobody will tell of one"}
	}
	return answer("publication", s.config.Publication, err)
}

func (s *Source) checkSlot(found server) cdc.Check {
	slot := found.slot
	if slot == nil {
		return cdc.Check{Name: "slot", OK: true, Detail: "none yet: the first relay makes " + s.config.Slot}
	}
	if reason := slot.foreign(found.database); reason != "" {
		return answer("slot", "", s.foreignSlot(reason))
	}
	if reason := slot.lost(); reason != "" {
		return cdc.Check{Name: "slot", Detail: s.config.Slot + ": " + reason, Hint: slot.hintOfLoss()}
	}
	if s.config.Failover && !slot.Failover {
		return cdc.Check{Name: "slot", OK: true, Detail: s.config.Slot + ", not failing over until the stream is opened again"}
	}
	return cdc.Check{Name: "slot", OK: true, Detail: strings.TrimSpace(s.config.Slot + " " + found.holder)}
}

// checkLimit names what happens to the disk while nobody reads.
func (s *Source) checkLimit(found server) cdc.Check {
	if found.keepMB < 0 {
		return cdc.Check{
			Name: "max_slot_wal_keep_size", OK: true, Detail: "no limit: while no relay runs, the log grows until the disk is full",
			Hint: "set max_slot_wal_keep_size: a relay that was away for longer begins anew by itself",
		}
	}
	return cdc.Check{Name: "max_slot_wal_keep_size", OK: true, Detail: fmt.Sprintf("%d MB", found.keepMB)}
}

func (s *Source) checkSync(ctx context.Context) cdc.Check {
	var state string
	err := s.pool.QueryRow(ctx, s.sql(readSyncSQL), s.config.Slot).Scan(&state)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return cdc.Check{Name: "synchronous_standby_names", OK: true, Detail: "no commit waits for the relay"}
	case err != nil:
		return answer("synchronous_standby_names", "", classify("read the state of replication", err))
	}
	return cdc.Check{
		Name: "synchronous_standby_names", Detail: "commits wait for the relay as for a standby (" + state + ")",
		Hint: "name the standbys in synchronous_standby_names, so that " + applicationName + " is none of them",
	}
}

// answer is a check that is right unless there is an error.
func answer(name, detail string, err error) cdc.Check {
	var refused *cdc.Error
	switch {
	case err == nil:
		return cdc.Check{Name: name, OK: true, Detail: detail}
	case errors.As(err, &refused):
		return cdc.Check{Name: name, Detail: refused.Err.Error(), Hint: refused.Hint}
	}
	return cdc.Check{Name: name, Detail: err.Error()}
}
