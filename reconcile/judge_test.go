package reconcile

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

var testNow = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func testRules() Rules {
	return Rules{
		HasWrite: true, HasLog: true, HasRead: true, FirstVersion: 1,
		Columns:   []Comparison{{Name: "status", Write: true, Log: true, Read: true}},
		Exemption: 10 * time.Minute, Deadline: 5 * time.Minute, Now: testNow,
	}
}

func status(text string) []Value { return []Value{parseValue(KindText, text, 0)} }

func row(version int64, text string) *Row {
	return &Row{Version: version, Values: status(text), UpdatedAt: testNow.Add(-time.Hour)}
}

// event is an event of an hour ago.
func event(version int64, text string, state State) Event {
	return Event{
		ID: fmt.Sprintf("e%d", version), Version: version, State: state, Word: string(state),
		CreatedAt: testNow.Add(-time.Hour), Values: status(text),
	}
}

func recent(e Event) Event {
	e.CreatedAt = testNow.Add(-time.Minute)
	return e
}

func deleteEvent(version int64, state State) Event {
	e := event(version, "", state)
	e.Delete = true
	return e
}

func TestJudge(t *testing.T) {
	sent1, sent2 := event(1, "NEW", StateSent), event(2, "PAID", StateSent)
	log := func(events ...Event) []Event { return events }
	for _, tt := range []struct {
		name        string
		facts       Facts
		rules       func(*Rules)
		write, read string // class and causes
		missing     int64
	}{
		{"all equal", Facts{Write: row(2, "PAID"), Log: log(sent1, sent2), Read: row(2, "PAID")}, nil, "", "", 0},
		{"nothing at all", Facts{}, nil, "", "", 0},

		// faults of the write side
		{"row newer than log", Facts{Write: row(2, "PAID"), Log: log(sent1), Read: row(1, "NEW")}, nil, "MISSING_EVENT never_written", "", 1},
		{"latest event deleted, read model has it", Facts{Write: row(2, "PAID"), Log: log(sent1), Read: row(2, "PAID")}, nil, "MISSING_EVENT never_written", "", 1},
		{"latest event deleted, read model edited", Facts{Write: row(2, "PAID"), Log: log(sent1), Read: row(2, "VOID")}, nil, "MISSING_EVENT never_written", "MISMATCH_READ ahead", 1},
		{"no event at all", Facts{Write: row(1, "NEW")}, nil, "MISSING_EVENT never_written", "", 1},
		{"no event, read model equal", Facts{Write: row(1, "NEW"), Read: row(1, "NEW")}, nil, "MISSING_EVENT never_written", "", 1},
		{"event gone below its head", Facts{Write: row(2, "PAID"), Log: log(sent1), Read: row(2, "PAID"), Head: new(int64(2))}, nil, "MISSING_EVENT row_gone", "", 1},
		{"dead", Facts{Write: row(2, "PAID"), Log: log(sent1, event(2, "PAID", StateDead)), Read: row(1, "NEW")}, nil, "MISSING_EVENT dead", "", 1},
		{"skipped", Facts{Write: row(2, "PAID"), Log: log(sent1, event(2, "PAID", StateSkipped)), Read: row(1, "NEW")}, nil, "MISSING_EVENT skipped", "", 1},
		{"never queued", Facts{Write: row(2, "PAID"), Log: log(sent1, event(2, "PAID", StateUnqueued)), Read: row(1, "NEW")}, nil, "MISSING_EVENT never_queued", "", 1},
		{"unknown word", Facts{Write: row(1, "NEW"), Log: log(event(1, "NEW", StateOther))}, nil, "MISSING_EVENT unknown_state", "", 1},
		{"pending", Facts{Write: row(2, "PAID"), Log: log(sent1, recent(event(2, "PAID", StatePending))), Read: row(1, "NEW")}, nil, "IN_FLIGHT pending", "", 0},
		{"pending too long", Facts{Write: row(2, "PAID"), Log: log(sent1, event(2, "PAID", StatePending)), Read: row(1, "NEW")}, nil, "MISSING_EVENT stuck", "", 1},
		{"pending of unknown age", Facts{Write: row(1, "NEW"), Log: log(Event{ID: "e1", Version: 1, State: StatePending, Values: status("NEW")})}, nil, "MISSING_EVENT stuck", "", 1},
		{"two stuck", Facts{Write: row(3, "X"), Log: log(sent1, event(2, "PAID", StatePending), event(3, "X", StatePending)), Read: row(1, "NEW")}, nil, "MISSING_EVENT stuck", "", 2},
		{"intermediate version, sparse", Facts{Write: row(3, "X"), Log: log(sent1, event(3, "X", StateSent)), Read: row(3, "X")}, nil, "", "", 0},
		{"intermediate version, dense", Facts{Write: row(3, "X"), Log: log(sent1, event(3, "X", StateSent)), Read: row(3, "X")}, dense, "MISSING_EVENT gap", "", 1},
		{"several gaps and the latest", Facts{Write: row(9, "X"), Log: log(event(2, "A", StateSent), event(5, "B", StateDead), event(6, "C", StateSent)), Read: row(6, "C")}, dense, "MISSING_EVENT never_written gap gap dead gap", "", 7},
		{"gap while the latest is pending", Facts{Write: row(3, "X"), Log: log(sent1, recent(event(3, "X", StatePending))), Read: row(1, "NEW")}, dense, "MISSING_EVENT gap", "", 1},
		{"intermediate pending, dense", Facts{Write: row(3, "X"), Log: log(sent1, recent(event(2, "PAID", StatePending)), event(3, "X", StateSent)), Read: row(3, "X")}, dense, "", "", 0},
		{"dense from the first that is kept", Facts{Write: row(8, "X"), Log: log(event(7, "W", StateSent), event(8, "X", StateSent)), Read: row(8, "X")}, func(r *Rules) { dense(r); r.LogSince = testNow.Add(-24 * time.Hour) }, "", "", 0},
		{"log expired, read model equal", Facts{Write: row(2, "PAID"), Read: row(2, "PAID")}, func(r *Rules) { r.LogSince = testNow }, "UNVERIFIED log_expired", "", 0},
		{"log expired, read model edited", Facts{Write: row(2, "PAID"), Read: row(2, "VOID")}, func(r *Rules) { r.LogSince = testNow }, "UNVERIFIED log_expired", "UNVERIFIED log_expired", 0},

		{"event without a row", Facts{Log: log(sent1), Read: row(1, "NEW")}, nil, "ORPHAN_EVENT no_row", "", 0},
		{"waiting event without a row", Facts{Log: log(recent(event(1, "NEW", StatePending)))}, nil, "ORPHAN_EVENT no_row", "", 0},
		{"row hard-deleted", Facts{Log: log(sent1, sent2), Read: row(2, "PAID")}, nil, "ORPHAN_EVENT no_row", "", 0},
		{"log ahead of the row", Facts{Write: row(1, "NEW"), Log: log(sent1, sent2), Read: row(2, "PAID")}, nil, "ORPHAN_EVENT ahead_of_row", "", 0},
		{"deleted, and back without an event", Facts{Write: row(2, "PAID"), Log: log(sent1, deleteEvent(2, StateSent))}, nil, "MISMATCH_WRITE deleted_in_log", "", 0},
		{"delete waits", Facts{Log: log(sent1, recent(deleteEvent(2, StatePending))), Read: row(1, "NEW")}, nil, "IN_FLIGHT pending", "", 0},
		{"delete is dead", Facts{Log: log(sent1, deleteEvent(2, StateDead)), Read: row(1, "NEW")}, nil, "MISSING_EVENT dead", "", 1},

		{"business column edited", Facts{Write: row(2, "VOID"), Log: log(sent1, sent2), Read: row(2, "PAID")}, nil, "MISMATCH_WRITE content", "", 0},
		{"business column edited while pending", Facts{Write: row(2, "VOID"), Log: log(sent1, recent(event(2, "PAID", StatePending))), Read: row(1, "NEW")}, nil, "MISMATCH_WRITE content", "", 0},
		{"payload field edited", Facts{Write: row(2, "PAID"), Log: log(sent1, event(2, "VOID", StateSent)), Read: row(2, "PAID")}, nil, "MISMATCH_WRITE content", "MISMATCH_READ content", 0},
		{"changes have no content to compare", Facts{Write: row(2, "PAID"), Log: log(sent1, event(2, "+1", StateSent)), Read: row(2, "PAID")}, func(r *Rules) { r.Delta = true }, "", "", 0},
		{"read model edited, events are changes", Facts{Write: row(2, "PAID"), Log: log(sent1, event(2, "+1", StateSent)), Read: row(2, "VOID")}, func(r *Rules) { r.Delta = true }, "", "MISMATCH_READ content", 0},

		// faults of the read side
		{"read row deleted", Facts{Write: row(2, "PAID"), Log: log(sent1, sent2)}, nil, "", "MISMATCH_READ absent", 0},
		{"read row edited", Facts{Write: row(2, "PAID"), Log: log(sent1, sent2), Read: row(2, "VOID")}, nil, "", "MISMATCH_READ content", 0},
		{"a second event of the version waits", Facts{Write: row(2, "PAID"), Log: log(sent1, sent2, event(2, "VOID", StatePending)), Read: row(2, "PAID")}, nil, "", "", 0},
		{"a second event of the version waits, and was read already", Facts{Write: row(2, "PAID"), Log: log(sent1, sent2, event(2, "VOID", StatePending)), Read: row(2, "VOID")}, nil, "", "", 0},
		{"a second event of the version waits, read row edited", Facts{Write: row(2, "PAID"), Log: log(sent1, sent2, event(2, "VOID", StatePending)), Read: row(2, "X")}, nil, "", "MISMATCH_READ content", 0},
		{"read row inserted", Facts{Read: row(1, "NEW")}, nil, "", "MISMATCH_READ extra", 0},
		{"read row set back", Facts{Write: row(2, "PAID"), Log: log(sent1, sent2), Read: row(1, "NEW")}, nil, "", "MISMATCH_READ behind", 0},
		{"set back, consumer says applied", Facts{Write: row(2, "PAID"), Log: log(sent1, recent(sent2)), Read: row(1, "NEW"), Consumer: fate("e2", FateApplied)}, nil, "", "MISMATCH_READ set_back behind", 0},
		{"read row ahead", Facts{Write: row(2, "PAID"), Log: log(sent1, sent2), Read: row(3, "X")}, nil, "", "MISMATCH_READ ahead", 0},
		{"just sent", Facts{Write: row(2, "PAID"), Log: log(sent1, recent(sent2)), Read: row(1, "NEW")}, nil, "", "IN_FLIGHT sent behind", 0},
		{"first event just sent", Facts{Write: row(1, "NEW"), Log: log(recent(sent1))}, nil, "", "IN_FLIGHT sent absent", 0},
		{"written long ago, just sent", Facts{Write: row(1, "NEW"), Log: log(Event{ID: "e1", Version: 1, State: StateSent, CreatedAt: testNow.Add(-time.Hour), SentAt: testNow, Values: status("NEW")})}, nil, "", "IN_FLIGHT sent absent", 0},
		{"hot key, consumer stuck at v1", Facts{Write: row(4, "D"), Log: log(sent1, sent2, recent(event(3, "C", StateSent)), recent(event(4, "D", StateSent))), Read: row(1, "NEW")}, nil, "", "MISMATCH_READ behind", 0},
		{"behind since before the log starts", Facts{Write: row(4, "D"), Log: log(recent(event(4, "D", StateSent))), Read: row(1, "NEW"), BehindSince: testNow.Add(-time.Hour)}, nil, "", "MISMATCH_READ behind", 0},
		{"held, tried again", Facts{Write: row(2, "PAID"), Log: log(sent1, sent2), Read: row(1, "NEW"), Consumer: fate("e2", FateRetry)}, nil, "", "IN_FLIGHT held_retry behind", 0},
		{"held DEAD", Facts{Write: row(2, "PAID"), Log: log(sent1, recent(sent2)), Read: row(1, "NEW"), Consumer: fate("e2", FateDead)}, nil, "", "MISMATCH_READ held_dead behind", 0},
		{"blocked behind a dead one", Facts{Write: row(2, "PAID"), Log: log(sent1, recent(sent2)), Read: row(1, "NEW"), Consumer: map[string]Consumed{"e2": {Fate: FateBlocked, BehindDead: true}}}, nil, "", "MISMATCH_READ blocked behind", 0},
		{"blocked behind one in retry", Facts{Write: row(2, "PAID"), Log: log(sent1, sent2), Read: row(1, "NEW"), Consumer: fate("e2", FateBlocked)}, nil, "", "IN_FLIGHT held_blocked behind", 0},
		{"waiting within its deadline", Facts{Write: row(2, "PAID"), Log: log(sent1, sent2), Read: row(1, "NEW"), Consumer: map[string]Consumed{"e2": {Fate: FateWaiting, Since: testNow.Add(-time.Minute)}}}, nil, "", "IN_FLIGHT held_waiting behind", 0},
		{"waiting too long", Facts{Write: row(2, "PAID"), Log: log(sent1, sent2), Read: row(1, "NEW"), Consumer: map[string]Consumed{"e2": {Fate: FateWaiting, Since: testNow.Add(-time.Hour)}}}, nil, "", "MISMATCH_READ held_waiting behind", 0},
		{"deleted and gone", Facts{Log: log(sent1, deleteEvent(2, StateSent))}, nil, "", "", 0},
		{"deleted and still there", Facts{Log: log(sent1, deleteEvent(2, StateSent)), Read: row(1, "NEW")}, nil, "", "MISMATCH_READ not_removed", 0},
		{"deleted a moment ago", Facts{Log: log(sent1, recent(deleteEvent(2, StateSent))), Read: row(1, "NEW")}, nil, "", "IN_FLIGHT sent not_removed", 0},
		{"gone before its delete was marked as sent", Facts{Log: log(sent1, recent(deleteEvent(2, StatePending)))}, nil, "IN_FLIGHT pending", "", 0},
		{"soft-deleted in all", Facts{Write: deleted(row(2, "")), Log: log(sent1, deleteEvent(2, StateSent)), Read: deleted(row(2, ""))}, nil, "", "", 0},
		{"back after a delete, just sent", Facts{Write: row(3, "C"), Log: log(sent1, deleteEvent(2, StateSent), recent(event(3, "C", StateSent)))}, nil, "", "IN_FLIGHT sent absent", 0},
		{"delivered before it was marked as sent", Facts{Write: row(2, "PAID"), Log: log(sent1, recent(event(2, "PAID", StatePending))), Read: row(2, "PAID")}, nil, "IN_FLIGHT pending", "", 0},
		{"delivered wrongly before it was marked as sent", Facts{Write: row(2, "PAID"), Log: log(sent1, recent(event(2, "PAID", StatePending))), Read: row(2, "VOID")}, nil, "IN_FLIGHT pending", "MISMATCH_READ content", 0},
		{"written and delivered during the run", Facts{Write: row(1, "NEW"), Log: log(sent1), Read: row(2, "PAID"), Again: log(sent1, sent2)}, nil, "", "", 0},
		{"new key during the run", Facts{Read: row(1, "NEW"), Again: log(sent1)}, nil, "", "", 0},
		{"deleted during the run", Facts{Write: row(1, "NEW"), Log: log(sent1), Again: log(sent1, deleteEvent(2, StateSent))}, nil, "", "", 0},
		{"version between two events", Facts{Write: row(3, "X"), Log: log(sent1, recent(event(3, "X", StatePending))), Read: row(2, "?")}, nil, "IN_FLIGHT pending", "UNVERIFIED no_such_version", 0},

		// two arms
		{"no read side", Facts{Write: row(2, "PAID"), Log: log(sent1)}, func(r *Rules) { r.HasRead = false }, "MISSING_EVENT never_written", "", 1},
		{"no write side", Facts{Log: log(sent1, sent2), Read: row(1, "NEW")}, func(r *Rules) { r.HasWrite = false }, "", "MISMATCH_READ behind", 0},
		{"no log, behind", Facts{Write: row(2, "PAID"), Read: row(1, "NEW")}, noLog, "", "MISMATCH_READ behind", 0},
		{"no log, just written", Facts{Write: &Row{Version: 2, UpdatedAt: testNow, Values: status("PAID")}, Read: row(1, "NEW")}, noLog, "", "IN_FLIGHT behind against_row", 0},
		{"no log, absent", Facts{Write: row(2, "PAID")}, noLog, "", "MISMATCH_READ absent", 0},
		{"no log, content", Facts{Write: row(2, "PAID"), Read: row(2, "VOID")}, noLog, "", "MISMATCH_READ content", 0},
		{"no log, extra", Facts{Read: row(2, "VOID")}, noLog, "", "MISMATCH_READ extra", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rules := testRules()
			if tt.rules != nil {
				tt.rules(&rules)
			}
			write, read := Judge(&tt.facts, &rules)
			if got := shown(write); got != tt.write {
				t.Errorf("write side: got %q, want %q", got, tt.write)
			}
			if got := shown(read); got != tt.read {
				t.Errorf("read side: got %q, want %q", got, tt.read)
			}
			if write != nil && write.Missing != tt.missing {
				t.Errorf("missing: got %d, want %d", write.Missing, tt.missing)
			}
		})
	}
}

func dense(r *Rules) { r.EveryVersion = true }

func noLog(r *Rules) { r.HasLog = false }

func deleted(r *Row) *Row {
	r.Deleted = true
	return r
}

func fate(id string, f Fate) map[string]Consumed {
	return map[string]Consumed{id: {Fate: f}}
}

func shown(v *Verdict) string {
	if v == nil {
		return ""
	}
	words := []string{string(v.Class)}
	for _, cause := range v.Causes {
		words = append(words, string(cause.Code))
	}
	return strings.Join(words, " ")
}

func TestAnEventsIDIsNoFormat(t *testing.T) {
	e := event(2, "PAID", StateSent)
	e.ID = "100%d"
	rules := testRules()
	_, read := Judge(&Facts{Write: row(2, "PAID"), Log: []Event{e}}, &rules)
	if want := "the log is at v2 (100%d), the read model has no row"; read == nil || read.Causes[0].Text != want {
		t.Errorf("got %+v, want %q", read, want)
	}
}
