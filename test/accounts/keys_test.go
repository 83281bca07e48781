package accounts

import (
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/waybillhq/waybill/reconcile"
)

// keyed is a kind of key: how its columns are made and what is in them.
type keyed struct {
	name    string
	parts   []reconcile.KeyPart
	columns string // of the key, with {type} marks; named k0, k1
	log     string // the same in the log, if otherwise
	stored  []reconcile.Stored
	keys    [][]string // literals
	shown   []string   // as reports show them
}

var keyedKinds = []keyed{
	{
		name: "text", parts: []reconcile.KeyPart{{Name: "k0"}}, columns: "k0 {text} NOT NULL",
		keys:  [][]string{{"'_a'"}, {"'-b'"}, {"'A'"}, {"'a'"}, {"'Z'"}, {"'z'"}, {"'1'"}, {"'é'"}, {"''"}},
		shown: []string{"_a", "-b", "A", "a", "Z", "z", "1", "é", ""},
	},
	{
		name: "integer, and text in the log", parts: []reconcile.KeyPart{{Name: "k0", Type: reconcile.KeyInteger}}, columns: "k0 BIGINT NOT NULL",
		log: "k0 {text} NOT NULL", stored: []reconcile.Stored{reconcile.StoredText},
		keys:  [][]string{{"-9223372036854775808"}, {"-10"}, {"-9"}, {"0"}, {"9"}, {"10"}, {"100"}, {"9223372036854775807"}},
		shown: []string{"-9223372036854775808", "-10", "-9", "0", "9", "10", "100", "9223372036854775807"},
	},
	{
		name: "composite", parts: []reconcile.KeyPart{{Name: "k0"}, {Name: "k1", Type: reconcile.KeyInteger}}, columns: "k0 {text} NOT NULL, k1 BIGINT NOT NULL",
		keys:  [][]string{{"'t1'", "1"}, {"'t1'", "2"}, {"'t1'", "10"}, {"'T1'", "1"}, {"'t2'", "1"}, {"'t2'", "-1"}, {"'t/3'", "5"}},
		shown: []string{"t1/1", "t1/2", "t1/10", "T1/1", "t2/1", "t2/-1", `t\/3/5`},
	},
	{
		name: "uuid", parts: []reconcile.KeyPart{{Name: "k0", Type: reconcile.KeyUUID}}, columns: "k0 {uuid} NOT NULL",
		log: "k0 {text} NOT NULL", stored: []reconcile.Stored{reconcile.StoredText},
		keys:  [][]string{{"'00000000-0000-7000-8000-000000000001'"}, {"'A0000000-0000-7000-8000-000000000001'"}, {"'a0000000-0000-7000-8000-000000000002'"}, {"'F0000000-0000-7000-8000-000000000001'"}},
		shown: []string{"00000000-0000-7000-8000-000000000001", "a0000000-0000-7000-8000-000000000001", "a0000000-0000-7000-8000-000000000002", "f0000000-0000-7000-8000-000000000001"},
	},
	{
		name: "binary", parts: []reconcile.KeyPart{{Name: "k0", Type: reconcile.KeyBinary}}, columns: "k0 {binary} NOT NULL",
		keys:  [][]string{{"{bytes 00}"}, {"{bytes 0000}"}, {"{bytes 0001}"}, {"{bytes 61}"}, {"{bytes ff}"}, {"{bytes ff00}"}},
		shown: []string{"0x00", "0x0000", "0x0001", "0x61", "0xff", "0xff00"},
	},
}

// literal writes bytes as the dialect does.
func literal(d reconcile.Database, text string) string {
	digits, isBytes := strings.CutPrefix(text, "{bytes ")
	if !isBytes {
		return text
	}
	digits = strings.TrimSuffix(digits, "}")
	if _, err := hex.DecodeString(digits); err != nil {
		panic(err)
	}
	if d.Dialect == reconcile.Postgres {
		return `'\x` + digits + `'`
	}
	return "x'" + digits + "'"
}

func TestEveryKindOfKeyIsMetInAllArms(t *testing.T) {
	eachPair(t, func(t *testing.T, write, read reconcile.Database) {
		for i := range keyedKinds {
			kind := &keyedKinds[i]
			t.Run(kind.name, func(t *testing.T) { meetKeys(t, kind, fmt.Sprint(i), write, read) })
		}
	})
}

func meetKeys(t *testing.T, kind *keyed, suffix string, write, read reconcile.Database) {
	log := kind.log
	if log == "" {
		log = kind.columns
	}
	names := "k0"
	if len(kind.parts) == 2 {
		names = "k0, k1"
	}
	w, l, r := "w"+suffix, "l"+suffix, "r"+suffix
	exec(t, write,
		"CREATE TABLE "+w+" ("+kind.columns+", version INTEGER NOT NULL, PRIMARY KEY ("+names+"))", "CREATE TABLE "+l+" ("+log+", version INTEGER NOT NULL)")
	exec(t, read, "CREATE TABLE "+r+" ("+kind.columns+", version INTEGER NOT NULL, PRIMARY KEY ("+names+"))")
	tuple := func(d reconcile.Database, key []string, stored []reconcile.Stored) string {
		texts := make([]string, len(key))
		for i, part := range key {
			texts[i] = literal(d, part)
			if stored != nil && stored[i] == reconcile.StoredText {
				texts[i] = "'" + strings.Trim(texts[i], "'") + "'"
			}
		}
		return strings.Join(texts, ", ")
	}
	for _, key := range kind.keys {
		exec(t, write, fmt.Sprintf("INSERT INTO %s VALUES (%s, 2)", w, tuple(write, key, nil)))
		for v := 1; v <= 2; v++ {
			exec(t, write, fmt.Sprintf("INSERT INTO %s VALUES (%s, %d)", l, tuple(write, key, kind.stored), v))
		}
		exec(t, read, fmt.Sprintf("INSERT INTO %s VALUES (%s, 2)", r, tuple(read, key, nil)))
	}
	check := &reconcile.Check{
		Name: kind.name, Key: kind.parts,
		Write:   &reconcile.Table{Database: "write", Table: w, Version: "version"},
		Log:     &reconcile.Log{Table: reconcile.Table{Database: "write", Table: l, Version: "version", KeyStored: kind.stored}},
		Read:    &reconcile.Table{Database: "read", Table: r, Version: "version"},
		Confirm: []time.Duration{0},
	}
	for rows := 1; rows <= 5; rows++ {
		check.ChunkRows = rows
		report := run(t, check, write, read)
		if got := listed(report); got != "" || int(report.Keys) != len(kind.keys) || rows < len(kind.keys) && report.Coverage.Ranges < 2 {
			t.Errorf("chunks of %d: %d keys in %d ranges, findings:\n%s", rows, report.Keys, report.Coverage.Ranges, report.Text())
		}
	}
	// Each key by itself, and with nothing but the read side missing.
	exec(t, read, "DELETE FROM "+r)
	check.ChunkRows = 3
	report := run(t, check, write, read)
	found := map[string]bool{}
	for _, f := range report.Findings {
		found[f.Key] = f.Class == reconcile.MismatchRead
	}
	for _, key := range kind.shown {
		if !found[key] {
			t.Errorf("%q is not found missing in the read side:\n%s", key, report.Text())
		}
	}
	rebuilt, err := engine(t, check, write, read).Rebuild(t.Context(), nil)
	if err != nil || rebuilt.Written != len(kind.keys) {
		t.Errorf("rebuilt %+v, %v", rebuilt, err)
	}
	if got := listed(run(t, check, write, read)); got != "" {
		t.Errorf("after the rebuild:\n%s", got)
	}
}
