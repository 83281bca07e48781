package wal

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"

	"github.com/waybillhq/waybill/cdc"
	"github.com/waybillhq/waybill/cdc/pgwal"
	"github.com/waybillhq/waybill/internal/testenv"
	"github.com/waybillhq/waybill/test/lab"
)

// standby makes a standby of a server: a copy of its folder, which follows it. The
// programs are in the folder bin and run as an account.
func (s *server) standby(t *testing.T, bin, account string, environment ...string) *server {
	t.Helper()
	copied := &server{Server: lab.NewServer(t, s.Name, environment...)}
	home := filepath.Join(copied.Home, s.Name)
	if err := os.Mkdir(home, 0o700); err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), filepath.Join(bin, "pg_basebackup"), "--dbname="+s.dsn, "--pgdata="+filepath.Join(home, "data"), "--checkpoint=fast", "--write-recovery-conf", "--create-slot", "--slot=standby")
	command.Dir = "/"
	if os.Getuid() == 0 {
		owner, err := user.Lookup(account)
		if err != nil {
			t.Fatal(err)
		}
		uid, _ := strconv.Atoi(owner.Uid)
		gid, _ := strconv.Atoi(owner.Gid)
		if err := os.Chown(home, uid, gid); err != nil {
			t.Fatal(err)
		}
		command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	}
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("pg_basebackup: %v\n%s", err, out)
	}
	copied.start(t)
	return copied
}

// promote makes the standby the primary, once it has all that the other has.
func (s *server) promote(t *testing.T, of *server) {
	t.Helper()
	var end string
	if err := of.pool.QueryRow(t.Context(), "SELECT pg_current_wal_lsn()::text").Scan(&end); err != nil {
		t.Fatal(err)
	}
	lab.Until(t, patience, "the standby to have followed", func() bool {
		var there bool
		err := s.pool.QueryRow(t.Context(), "SELECT pg_last_wal_replay_lsn() >= $1::text::pg_lsn", end).Scan(&there)
		return err == nil && there
	})
	of.pool.Close()
	if err := of.Down(); err != nil {
		t.Fatal(err)
	}
	s.run(t, "SELECT pg_promote()")
}

// The new primary has the table and not the slot. The position that was kept is
// told to be lost, and the reader begins anew.
func failoverWithoutTheSlot(t *testing.T, s *server) {
	source := s.sourceOf(t, nil)
	stream, _, at := follow(t, source, "")
	stream.Ack(at)
	standby := s.standby(t, "/usr/lib/postgresql/15/bin", "postgres")
	if _, err := open(t, standby.sourceOf(t, nil), at); cdc.StateOf(err) != cdc.Misconfigured {
		t.Errorf("a standby: got %v", err)
	}
	closeStream(t, stream)
	standby.promote(t, s)
	closeStream(t, standby.wantLost(t, standby.sourceOf(t, nil), at, cdc.LostSlot, "failed over"))
}

// The new primary has the slot too, and what was committed before the failover and
// not read is read there.
func failoverWithTheSlot(t *testing.T, s *server) {
	config := &pgwal.Config{Failover: true}
	source := s.sourceOf(t, config)
	stream, _, at := follow(t, source, "")
	stream.Ack(at)
	standby := s.standby(t, filepath.Join(testenv.Postgres18Programs(t), "usr/lib/postgresql/18/bin"), "nobody", "WAYBILL_ENV_POSTGRES18_PROGRAMS="+testenv.Postgres18Programs(t))
	standby.set(t, "hot_standby_feedback = on", "sync_replication_slots = on",
		fmt.Sprintf("primary_conninfo = '%s'", "host=127.0.0.1 port="+strconv.Itoa(s.Port)+" user=waybill password=waybill dbname=postgres"))
	lab.Until(t, patience, "the standby to keep the slot", func() bool {
		var synced bool
		err := standby.pool.QueryRow(t.Context(), "SELECT synced AND NOT temporary FROM pg_replication_slots WHERE failover AND slot_name <> 'standby'").Scan(&synced)
		return err == nil && synced
	})
	want := s.insert(t, 3)
	closeStream(t, stream)
	standby.promote(t, s)
	after := standby.sourceOf(t, config)
	stream, got, _ := follow(t, after, at)
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	closeStream(t, stream)
}
