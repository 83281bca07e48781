package wal

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/waybillhq/waybill/cdc"
	"github.com/waybillhq/waybill/internal/testenv"
	"github.com/waybillhq/waybill/test/lab"
)

func TestPostgres15(t *testing.T) {
	testenv.Postgres15(t) // installs the programs
	s := newServer(t, "postgres15")
	t.Run("server is killed", func(t *testing.T) { serverIsKilled(t, s) })
	t.Run("log beyond its limit", func(t *testing.T) { logBeyondItsLimit(t, s) })
	t.Run("failover without the slot", func(t *testing.T) { failoverWithoutTheSlot(t, s) })
}

func TestPostgres18(t *testing.T) {
	testenv.Postgres18(t)
	s := newServer(t, "postgres18", "WAYBILL_ENV_POSTGRES18_PROGRAMS="+testenv.Postgres18Programs(t))
	t.Run("slot that nobody reads", func(t *testing.T) { slotThatNobodyReads(t, s) })
	t.Run("failover with the slot", func(t *testing.T) { failoverWithTheSlot(t, s) })
}

// A reader that is away for longer than the limit of log allows, and one that stays
// and acknowledges nothing, lose their place, are told so, and begin anew.
func logBeyondItsLimit(t *testing.T, s *server) {
	s.set(t, "max_slot_wal_keep_size = '32MB'", "max_wal_size = '32MB'", "min_wal_size = '32MB'")
	source := s.source(t)
	stream, _, at := follow(t, source, "")
	stream.Ack(at)
	closeStream(t, stream)
	if got := status(t, source); got.State != cdc.Waiting || got.LimitBytes != 32<<20 || got.RetainedBytes < 0 || got.Headroom <= 0 {
		t.Errorf("before: got %+v", got)
	}
	s.write(t, 100)
	s.run(t, "CHECKPOINT")
	stream = s.wantLost(t, source, at, cdc.WALRemoved, "max_slot_wal_keep_size")

	// Now it stays, and does not acknowledge.
	ended := make(chan error, 1)
	go func() {
		for {
			if _, err := stream.Next(context.Background()); err != nil {
				ended <- err
				return
			}
		}
	}()
	s.insert(t, 1)
	var err error
	lab.Until(t, patience, "the end of the stream", func() bool {
		s.write(t, 50)
		s.run(t, "CHECKPOINT")
		select {
		case err = <-ended:
			return true
		default:
			return false
		}
	})
	if err == nil || cdc.StateOf(err) == cdc.Opening {
		t.Errorf("got %v", err)
	}
	closeStream(t, stream)
	closeStream(t, s.wantLost(t, source, at, cdc.WALRemoved, "max_slot_wal_keep_size"))
}

// The log is kept by time too.
func slotThatNobodyReads(t *testing.T, s *server) {
	source := s.source(t)
	stream, _, at := follow(t, source, "")
	stream.Ack(at)
	s.set(t, "idle_replication_slot_timeout = '1s'")
	if got := status(t, source); got.Headroom != time.Second {
		t.Errorf("while it is read: got %+v, want a headroom of one second", got)
	}
	closeStream(t, stream)
	lab.Until(t, patience, "the slot to be given up", func() bool {
		s.run(t, "CHECKPOINT")
		return status(t, source).State == cdc.WALRemoved
	})
	closeStream(t, s.wantLost(t, source, at, cdc.WALRemoved, "idle_replication_slot_timeout"))
}

// A server that is killed forgets what was acknowledged lately; the reader finds its
// place again.
func serverIsKilled(t *testing.T, s *server) {
	source := s.source(t)
	stream, _, _ := follow(t, source, "")
	want := s.insert(t, 3)
	if err := source.Mark(t.Context(), "before"); err != nil {
		t.Fatal(err)
	}
	var ids []int64
	var at cdc.Position
	for at == "" || len(ids) < len(want) {
		batch, err := stream.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ids, at = append(ids, batch.IDs...), batch.Position
		stream.Ack(at)
	}
	more := s.insert(t, 2)
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := stream.Next(t.Context()); err != nil {
			if cdc.StateOf(err) != cdc.Unreachable {
				t.Errorf("got %v", err)
			}
			break
		}
	}
	closeStream(t, stream)
	if _, err := open(t, source, at); cdc.StateOf(err) != cdc.Unreachable {
		t.Errorf("while it is down: got %v", err)
	}
	if err := s.Up(); err != nil {
		t.Fatal(err)
	}
	s.pool.Reset()
	stream, got, _ := follow(t, source, at)
	defer closeStream(t, stream)
	if !slices.Equal(got, more) {
		t.Errorf("got %v, want %v", got, more)
	}
}
