package mybinlog

import "testing"

func TestReadQuery(t *testing.T) {
	for _, test := range []struct {
		text string
		want query
	}{
		{"BEGIN", query{verb: begin}},
		{"START TRANSACTION", query{verb: begin}},
		{"COMMIT", query{verb: commit}},
		{"COMMIT /* implicit, from Xid_log_event */", query{verb: commit}},
		{"ROLLBACK", query{verb: rollback}},
		{"ROLLBACK WORK", query{verb: rollback}},
		{"ROLLBACK TO `Sp 1`", query{verb: rollbackTo, name: "sp 1"}},
		{"ROLLBACK TO SAVEPOINT sp", query{verb: rollbackTo, name: "sp"}},
		{"ROLLBACK WORK TO savepoint", query{verb: rollbackTo, name: "savepoint"}},
		{"SAVEPOINT `Sp 1`", query{verb: savepoint, name: "sp 1"}},
		{"XA START X'6162',X'',1", query{verb: xaStart, name: "6162,,1"}},
		{"XA END X'6162',X'63',1", query{verb: xaEnd, name: "6162,63,1"}},
		{"XA COMMIT X'6162',X'63',-1", query{verb: xaCommit, name: "6162,63,-1"}},
		{"XA COMMIT X'6162',X'',1 ONE PHASE", query{verb: xaCommit, name: "6162,,1"}},
		{"XA ROLLBACK X'6162',X'',1", query{verb: xaRollback, name: "6162,,1"}},
		{"TRUNCATE TABLE `shop`.`outbox_event`", query{verb: truncate, schema: "shop", table: "outbox_event"}},
		{"truncate outbox_event", query{verb: truncate, table: "outbox_event"}},
		{"/* a; TRUNCATE b */ TRUNCATE /* x */ TABLE\n`a``b` . `c`", query{verb: truncate, schema: "a`b", table: "c"}},
		{"-- first\nTRUNCATE TABLE \"odd\"\"name\"", query{verb: truncate, table: `odd"name`}},
		{"/*!40000 TRUNCATE TABLE t */", query{verb: truncate, table: "t"}},
		{"TRUNCATE TABLE `table`", query{verb: truncate, table: "table"}},
		{"ALTER TABLE outbox_event TRUNCATE PARTITION p0", query{verb: truncate, table: "outbox_event"}},
		{"ALTER TABLE outbox_event ADD COLUMN truncate int", query{}},
		{"INSERT INTO outbox_event (id) VALUES (1)", query{verb: insert, table: "outbox_event"}},
		{"insert ignore into `s`.`outbox_event` VALUES ('into x')", query{verb: insert, schema: "s", table: "outbox_event"}},
		{"INSERT outbox_event VALUES (1)", query{verb: insert, table: "outbox_event"}},
		{"REPLACE LOW_PRIORITY outbox_event SET id = 1", query{verb: insert, table: "outbox_event"}},
		{"LOAD DATA INFILE 'a into b' INTO TABLE `outbox_event`", query{verb: insert, table: "outbox_event"}},
		{"CREATE TABLE `t` (`id` int) START TRANSACTION", query{opens: true}},
		{"CREATE TABLE t (id int)", query{}},
		{"", query{}},
		{"X", query{}},
		{"XA", query{}},
		{"XA COMMIT", query{verb: xaCommit}},
		{"`", query{}},
	} {
		if got := readQuery(test.text); got != test.want {
			t.Errorf("%q: got %+v, want %+v", test.text, got, test.want)
		}
	}
}

func FuzzReadQuery(f *testing.F) {
	f.Add("TRUNCATE TABLE `a`.`b`")
	f.Add("/*! XA COMMIT X'00',X'',1")
	f.Add("INSERT /* ' */ INTO \"a\"\"b\"")
	f.Fuzz(func(_ *testing.T, text string) { readQuery(text) })
}
