package ops

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/waybillhq/waybill/cdc"
	"github.com/waybillhq/waybill/cdc/memlog"
	"github.com/waybillhq/waybill/relay"
	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/memstore"
)

// reporting makes a relay known that says this of its feed.
func reporting(t *testing.T, st *memstore.Store, owner string, lanes int, feed *relay.FeedStatus) {
	t.Helper()
	report, err := json.Marshal(relay.Health{State: relay.Green, Stats: relay.Stats{Feed: feed}})
	if err != nil {
		t.Fatal(err)
	}
	beat := store.Heartbeat{Owner: owner, Host: owner + ":1", Mode: feed.Mode, TTL: time.Hour, Report: report}
	if _, _, err := st.Renew(t.Context(), beat); err != nil {
		t.Fatal(err)
	}
	if _, err := st.Claim(t.Context(), owner, time.Hour, lanes); err != nil {
		t.Fatal(err)
	}
}

func readLog(t *testing.T, st *memstore.Store) *LogStatus {
	t.Helper()
	relays, err := st.ListRelays(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	status, err := ReadLog(t.Context(), st, relays)
	if err != nil {
		t.Fatal(err)
	}
	return status
}

func TestStatusTellsHowTheLogIsRead(t *testing.T) {
	st := memstore.New(nil)
	if got := readLog(t, st); got != nil {
		t.Errorf("got %+v without a log, want nothing", got)
	}
	reporting(t, st, "leader", store.Lanes, &relay.FeedStatus{
		Mode: store.ModeCDC, Source: "postgres:waybill", State: cdc.Streaming, Position: "0/2000", Delay: 1500 * time.Millisecond,
		Told: 12, Streams: 3, CatchUps: 1, Losses: 2, LastLoss: cdc.LostSlot, Undecodable: 4,
		Log: &cdc.Status{LagBytes: 10, RetainedBytes: 20, LimitBytes: -1, Headroom: 90 * time.Minute},
	})
	reporting(t, st, "standby", 0, &relay.FeedStatus{Mode: store.ModeCDC, Source: "postgres:waybill", State: cdc.Standby})
	if err := st.SetMode(t.Context(), store.Action{Actor: "anna", Reason: "load"}, store.ModeCDC); err != nil {
		t.Fatal(err)
	}
	leases, err := st.ListLeases(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	guard := store.Guard{Owner: "leader", Lanes: []store.Lease{leases[0].Lease}}
	if err := st.SavePosition(t.Context(), guard, "postgres:waybill", "0/1000"); err != nil {
		t.Fatal(err)
	}
	got := readLog(t, st)
	if got == nil || got.SavedAt.IsZero() {
		t.Fatalf("got %+v, want a log with a saved position", got)
	}
	got.SavedAt = time.Time{}
	want := LogStatus{
		Set: store.ModeCDC, Mode: store.ModeCDC, State: "STREAMING", Relay: "leader:1", Source: "postgres:waybill", Position: "0/2000",
		DelaySeconds: 1.5, LagBytes: 10, RetainedBytes: 20, LimitBytes: -1, HeadroomHours: 1.5,
		Told: 12, Restarts: 2, CatchUps: 1, Losses: 2, LastLoss: "LOST_SLOT", Undecodable: 4,
	}
	if *got != want {
		t.Errorf("got  %+v\nwant %+v", *got, want)
	}
}

func TestModeLetsTheLogGo(t *testing.T) {
	st, log := memstore.New(nil), new(memlog.Log)
	source := log.Source("memory")
	action := store.Action{Actor: "anna", Reason: "a move"}
	stream, err := source.Open(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	state := func() cdc.State {
		status, err := source.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return status.State
	}
	// The relay that reads it lets it go.
	if err := SetMode(t.Context(), st, source, action, store.ModePoll); err != nil || state() != cdc.Streaming {
		t.Fatalf("while a relay reads: %v, the log is %s", err, state())
	}
	if err := stream.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, mode := range []string{store.ModeCDC, ""} {
		if err := SetMode(t.Context(), st, source, action, mode); err != nil || state() != cdc.Waiting {
			t.Fatalf("mode %q: %v, the log is %s, want it kept", mode, err, state())
		}
	}
	if err := SetMode(t.Context(), st, source, action, store.ModePoll); err != nil || state() != cdc.LostSlot {
		t.Fatalf("without a reader: %v, the log is %s, want it dropped", err, state())
	}
	if err := SetMode(t.Context(), st, nil, store.Action{Actor: "anna"}, store.ModePoll); !errors.Is(err, store.ErrNoReason) {
		t.Errorf("got %v, want ErrNoReason", err)
	}
}

// looked is a source with a status of the test's own.
type looked struct {
	cdc.Source
	status cdc.Status
	err    error
}

func (l looked) Status(context.Context) (cdc.Status, error) { return l.status, l.err }

func TestDoctorLooksAtTheLog(t *testing.T) {
	source := new(memlog.Log).Source("memory")
	for _, c := range []struct {
		name   string
		mode   string
		source cdc.Source
		ok     bool
		detail string // empty: nothing is said
	}{
		{"no log", store.ModeCDC, nil, true, ""},
		{"polling", store.ModePoll, looked{Source: source, status: cdc.Status{RetainedBytes: -1}}, true, ""},
		{"polling, and a slot is left", store.ModePoll, looked{Source: source, status: cdc.Status{RetainedBytes: 3 << 20}}, false, "keeps 3.0 MiB"},
		{"well", store.ModeCDC, looked{Source: source, status: cdc.Status{State: cdc.Streaming, LagBytes: 2048, Headroom: -1}}, true, "2.0 KiB behind"},
		{"away", store.ModeCDC, looked{Source: source, err: errors.New("refused")}, false, "refused"},
		{"lost", store.ModeCDC, looked{Source: source, status: cdc.Status{State: cdc.WALRemoved, Headroom: -1}}, false, "WAL_REMOVED"},
		{"soon lost", store.ModeCDC, looked{Source: source, status: cdc.Status{State: cdc.Streaming, Headroom: time.Hour}}, false, "1h0m0s"},
	} {
		t.Run(c.name, func(t *testing.T) {
			diagnosis, err := Doctor(t.Context(), memstore.New(nil), &DoctorConfig{Source: c.source, Mode: c.mode})
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range diagnosis.Examinations {
				if e.Check != CheckLog {
					continue
				}
				if c.detail == "" || e.OK != c.ok || !strings.Contains(e.Detail, c.detail) {
					t.Errorf("got %+v, want ok %v and %q", e, c.ok, c.detail)
				}
				return
			}
			if c.detail != "" {
				t.Errorf("the doctor says nothing of the log, want %q", c.detail)
			}
		})
	}
}
