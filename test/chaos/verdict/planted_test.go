package verdict

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// Each corruption is planted in what a run without any fault has left behind.
var planted = []struct {
	name string
	sql  string // on a copy of the database
	seen func(s *Seen)
	want string // begins one of the findings
}{
	{name: "committed event is lost", sql: `DELETE FROM outbox_event WHERE event_id = 'a-t1/0'; DELETE FROM outbox_receipt WHERE event_id = 'a-t1/0'`, want: "P1: transaction t1/0 was committed, but 1 of its 2 events are lost"},
	{name: "transaction is lost", seen: func(s *Seen) {
		s.History = append(s.History, Entry{Tx: "t9", State: Committing, Events: []Intent{{ID: "a-t9", Key: "a", Version: 5}}}, Entry{Tx: "t9", State: OK})
	}, want: "P1: transaction t9 was committed, but 1 of its 1 events are lost"},
	{name: "phantom event", sql: `INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, aggregate_version, event_type, topic, payload) VALUES ('z', 'account', 'z', 1, 'T', 'orders', '{}')`, want: "P1: event z of z was never appended"},
	{name: "event of a rolled back transaction", seen: func(s *Seen) { s.end("t1/0", Leaving, RolledBack) }, want: "P1: transaction t1/0 was not committed, but 2 of its events exist"},
	{name: "event of a failed transaction", seen: func(s *Seen) { s.end("t1/0", Committing, Failed) }, want: "P1: transaction t1/0 was not committed"},
	{name: "half a transaction of unknown end", sql: `DELETE FROM outbox_event WHERE event_id = 'b-t4/0'`, want: "P1: half of transaction t4/0 exists: 1 of 2 events"},
	{name: "change without an event", sql: `UPDATE account SET version = version + 1 WHERE id = 'b'`, want: "P1: account b is {Version:5 "},
	{name: "event of other content", sql: `UPDATE outbox_event SET payload = '{"amount": 1}' WHERE event_id = 'a-t0/0'`, want: "P1: event a-t0/0 is "},
	{name: "record of no event", seen: func(s *Seen) { s.Records = append(s.Records, Record{Topic: topic, Intent: Intent{ID: "z"}}) }, want: "P1: record z of "},

	{name: "unsettled row without an event", sql: `INSERT INTO outbox_pending (id, lane, key_hash, topic_hash) VALUES (999, 1, 1, 1)`, want: "P2: row 999 of the queue has no event"},
	{name: "settled without a receipt", sql: `DELETE FROM outbox_receipt WHERE event_id = 'b-t1/0'`, want: "P2: event b-t1/0 is neither queued nor settled"},
	{name: "settled and still queued", sql: `INSERT INTO outbox_pending (id, lane, key_hash, topic_hash) SELECT id, 1, 1, 1 FROM outbox_event WHERE event_id = 'b-t1/0'`, want: "P2: event b-t1/0 is both queued and settled"},
	{name: "receipt for what was never sent", seen: func(s *Seen) {
		s.Records = slices.DeleteFunc(s.Records, func(r Record) bool { return r.ID == "b-t4/0" })
	}, want: "P2: event b-t4/0 has a receipt, but is not in the topic"},
	{name: "receipt that names another place", sql: `UPDATE outbox_receipt SET published_to = 'orders[7]@7' WHERE event_id = 'b-t1/0'`, want: "P2: the receipt of b-t1/0 says orders[7]@7"},
	{name: "record of other content", seen: func(s *Seen) { s.Records[0].Sum = "" }, want: "P2: record of "},
	{name: "consumer lost an event", sql: `DELETE FROM consumed_event WHERE event_id = 'a-t4/0' AND consumer_group = 'stock'; DELETE FROM effect WHERE event_id = 'a-t4/0' AND consumer_group = 'stock'`, want: "P2: group stock has neither consumed nor kept a-t4/0"},
	{name: "poison forgotten", sql: `DELETE FROM held_event WHERE state = 'DEAD' AND consumer_group = 'points'`, want: "P2: group points has neither consumed nor kept poison-"},
	{name: "poison dead by another cause", sql: `UPDATE held_event SET first_error = 'time-out' WHERE state = 'DEAD'`, want: "P2: group stock: event poison-t2/1 is dead by"},
	{name: "skipped by nobody", sql: `UPDATE consumed_event SET outcome = 'SKIPPED' WHERE event_id = 'a-t0/0' AND consumer_group = 'stock'`, want: "P2: group stock: event a-t0/0 is SKIPPED"},

	{name: "double effect", sql: `INSERT INTO effect (consumer_group, event_id, of_key, version) SELECT consumer_group, event_id, of_key, version FROM effect WHERE event_id = 'a-t1/0' AND consumer_group = 'stock'`, want: "P3: group stock: event a-t1/0 had its effect 2 times"},
	{name: "effect that left no row", sql: `UPDATE model SET events = events + 1, total = total + 5 WHERE of_key = 'a' AND consumer_group = 'points'`, want: "P3: the model is {Group:points Key:a "},
	{name: "effect of what is not consumed", sql: `DELETE FROM consumed_event WHERE event_id = 'a-t1/0' AND consumer_group = 'stock'`, want: "P3: group stock: event a-t1/0 had an effect, but is not consumed"},
	{name: "consumed without an effect", sql: `DELETE FROM effect WHERE event_id = 'a-t4/0' AND consumer_group = 'stock'`, want: "P3: group stock: event a-t4/0 is consumed, but had no effect"},

	{name: "effects in another order", sql: `UPDATE effect SET version = 3 - version, event_id = CASE event_id WHEN 'a-t0/0' THEN 'a-t1/0' ELSE 'a-t0/0' END WHERE consumer_group = 'stock' AND event_id IN ('a-t0/0', 'a-t1/0')`, want: "P4: group stock, key a: the effect of version 2 comes after that of version 0"},
	{name: "records in another order", seen: func(s *Seen) {
		i := slices.IndexFunc(s.Records, func(r Record) bool { return r.ID == "b-t0/0" })
		j := slices.IndexFunc(s.Records, func(r Record) bool { return r.ID == "b-t1/0" })
		s.Records[i], s.Records[j] = s.Records[j], s.Records[i]
	}, want: "P4: key b: version 2 is published first after version 0"},
	{name: "key in two partitions", seen: func(s *Seen) {
		i := slices.IndexFunc(s.Records, func(r Record) bool { return r.ID == "b-t4/0" })
		s.Records[i].Partition++
	}, want: "P4: key b is in partitions"},
	{name: "consumed behind the poison", sql: `UPDATE held_event SET consumer_group = 'nobody' WHERE event_id = 'poison-t4/1' AND consumer_group = 'stock'; INSERT INTO consumed_event SELECT consumer_group, 'poison-t4/1', event_type, tenant_id, aggregate_type, aggregate_id, aggregate_version, outcome, topic, partition, position, received_at, consumed_at, duplicates, last_duplicate_at FROM consumed_event WHERE event_id = 'a-t1/0' AND consumer_group = 'stock'`, want: "P4: group stock has consumed poison-t4/1, though it is behind what is dead"},

	{name: "published before it was committed", seen: func(s *Seen) { s.Records[0].At = s.Records[0].At.Add(-time.Hour) }, want: "P5: event "},

	{name: "write of a stale owner", sql: `INSERT INTO chaos_write (event_row, who, owner, status, retries, last_error, gone) VALUES (1, 'relay-1', 'x2', 'PENDING', 0, '', 1)`, want: "P6: relay-1 wrote to row 1, whose lane was owned by relay-2"},
	{name: "write to a free lane", sql: `INSERT INTO chaos_write (event_row, who, owner, status, retries, last_error, gone) VALUES (1, 'relay-1', '', 'PENDING', 0, '', 1)`, want: "P6: relay-1 wrote to row 1, whose lane was owned by \"\", which is no relay"},

	{name: "poison blocks another key", sql: `UPDATE held_event SET event_id = 'a-t4/0', aggregate_id = 'a' WHERE event_id = 'poison-t4/1' AND consumer_group = 'stock'; DELETE FROM consumed_event WHERE event_id = 'a-t4/0' AND consumer_group = 'stock'; DELETE FROM effect WHERE event_id = 'a-t4/0' AND consumer_group = 'stock'`, want: "P7: group stock: event a-t4/0 of a is BLOCKED, and behind nothing that is dead"},
	{name: "refused event blocks another key", sql: `DELETE FROM outbox_receipt WHERE event_id = 'a-t4/0'; INSERT INTO outbox_pending (id, lane, key_hash, topic_hash, parked) SELECT id, 1, 1, 1, 1 FROM outbox_event WHERE event_id = 'a-t4/0'`, want: "P7: event a-t4/0 of a is not settled, and behind nothing that is dead"},
	{name: "outage kills an event", sql: `DELETE FROM outbox_receipt WHERE event_id = 'a-t4/0'; INSERT INTO outbox_pending (id, lane, key_hash, topic_hash, status, last_error) SELECT id, 1, 1, 1, 'DEAD', 'connection refused' FROM outbox_event WHERE event_id = 'a-t4/0'`, want: "P7: event a-t4/0 is dead, though nothing is wrong with it: connection refused"},
	{name: "outage spends an attempt", sql: `INSERT INTO chaos_write (event_row, who, owner, status, retries, last_error, gone) VALUES (1, 'relay-1', 'x1', 'PENDING', 1, 'connection refused', 0)`, want: "P7: an attempt of row 1 was spent, though nothing is wrong with it: connection refused"},
	{name: "outage kills an event at a consumer", sql: `UPDATE held_event SET state = 'DEAD', first_error = 'connection refused' WHERE event_id = 'poison-t4/1' AND consumer_group = 'stock'`, want: "P7: group stock: event poison-t4/1 is dead, though nothing is wrong with it: connection refused"},

	{name: "never at rest", seen: func(s *Seen) { s.Stuck = "3 events are not sent" }, want: "P10: not at rest after the last fault: 3 events are not sent"},

	{name: "application in a deadlock", seen: func(s *Seen) {
		s.History = append(s.History, Entry{Tx: "t9", State: Failed, Code: "40P01", Error: "deadlock detected"})
	}, want: "P13: transaction t9 of the application failed with 40P01: deadlock detected"},
	{name: "application waits for a lock", seen: func(s *Seen) {
		s.History = append(s.History, Entry{Tx: "t9", State: Failed, Code: "1205", Error: "lock wait timeout"})
	}, want: "P13: transaction t9 of the application failed with 1205"},
}

// end gives a transaction another end.
func (s *Seen) end(tx string, asked, answered State) {
	s.History = slices.Clone(s.History)
	for i := range s.History {
		switch e := &s.History[i]; {
		case e.Tx == tx && len(e.Events) > 0:
			e.State = asked
		case e.Tx == tx:
			e.State = answered
		}
	}
}

func TestPlantedCorruptionsAreFound(t *testing.T) {
	file, seen := run(t)
	if found := look(t, file, seen, "").Check(); len(found) > 0 {
		t.Fatalf("a run without faults has findings: %v", found)
	}
	for _, p := range planted {
		t.Run(p.name, func(t *testing.T) {
			corrupt := look(t, file, seen, p.sql)
			corrupt.Records = slices.Clone(corrupt.Records)
			corrupt.History = slices.Clone(corrupt.History)
			if p.seen != nil {
				p.seen(corrupt)
			}
			found := corrupt.Check()
			if !slices.ContainsFunc(found, func(f Finding) bool { return strings.HasPrefix(f.String(), p.want) }) {
				t.Errorf("found %v, want %q", found, p.want)
			}
		})
	}
}

// Chaos itself is no finding: a database that goes away, answers that are lost.
func TestWhatTheChaosMayDo(t *testing.T) {
	file, seen := run(t)
	calm := look(t, file, seen, "")
	calm.History = append(slices.Clone(calm.History),
		Entry{Tx: "t8", State: Committing, Events: []Intent{{ID: "a-t8", Key: "a", Version: 5}}},
		Entry{Tx: "t8", State: Unknown, Error: "connection reset"},
		Entry{Tx: "t9", State: Failed, Code: "57P01", Error: "terminating connection"},
		Entry{Tx: "t10", State: Failed, Code: "1053", Error: "server shutdown in progress"},
	)
	again := calm.Records[0]
	again.Offset += 1000
	calm.Records = append(slices.Clone(calm.Records), again)
	if found := calm.Check(); len(found) > 0 {
		t.Errorf("found %v", found)
	}
}
