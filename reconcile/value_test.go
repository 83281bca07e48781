package reconcile

import (
	"testing"
	"time"
)

func TestEqual(t *testing.T) {
	text := column{as: KindText, digits: -1}
	number := column{as: KindNumber, digits: -1}
	auto := column{digits: -1}
	micro := column{database: "TIMESTAMPTZ", digits: 6}
	milli := column{database: "DATETIME(3)", digits: -1}
	doc := column{as: KindJSON, digits: -1}
	noon := time.Date(2026, 3, 1, 12, 0, 0, 123456000, time.UTC)
	for _, tt := range []struct {
		name string
		a, b Value
		want bool
		note string
	}{
		{"NULL and NULL", Null, auto.value(nil), true, ""},
		{"NULL and empty", Null, text.value(""), false, ""},
		{"NULL and 'NULL'", Null, text.value("NULL"), false, ""},
		{"empty and 'NULL'", text.value(""), text.value("NULL"), false, ""},
		{"NULL and zero", Null, number.value(int64(0)), false, ""},
		{"1.10 and 1.1", number.value("1.10"), number.value("1.1"), true, "number, by value"},
		{"1.10 and 1.1 as text", text.value("1.10"), text.value("1.1"), false, ""},
		{"-0.0 and 0", number.value("-0.0"), number.value(int64(0)), true, "number, by value"},
		{"float minus zero", auto.value(negativeZero()), auto.value(int64(0)), true, "number, by value"},
		{"beyond float", number.value("9007199254740993"), number.value("9007199254740992"), false, ""},
		{"unsigned", auto.value(uint64(18446744073709551615)), number.value("18446744073709551615"), true, ""},
		{"scientific", number.value("1.5e3"), number.value("1500.00"), true, "number, by value"},
		{"huge exponent", number.value("1e999999999"), number.value("1e999999998"), false, ""},
		{"no number", number.value("12a"), number.value("12a"), true, ""},
		{"text against number", text.value("1.10"), number.value("1.1"), true, "read as number"},
		{"text that is no number", text.value("one"), number.value("1"), false, ""},
		{"microseconds against DATETIME(3)", micro.value(noon), milli.value("2026-03-01 12:00:00.123"), true, "time, at the coarser precision"},
		{"rounded up", micro.value(noon.Add(500 * time.Microsecond)), milli.value("2026-03-01 12:00:00.124"), true, "time, at the coarser precision"},
		{"another millisecond", micro.value(noon), milli.value("2026-03-01 12:00:00.125"), false, ""},
		{"DATETIME(3) first", milli.value("2026-03-01 12:00:00.123"), micro.value(noon), true, "time, at the coarser precision"},
		{"other zone", micro.value(noon), micro.value(noon.In(time.FixedZone("", 7200))), true, ""},
		{"trimmed fraction is not coarse", column{as: KindTime, digits: -1}.value("2026-03-01T12:00:00.1Z"), column{as: KindTime, digits: -1}.value("2026-03-01T12:00:00.15Z"), false, ""},
		{"text against time", text.value("2026-03-01T13:00:00.123456+01:00"), micro.value(noon), true, "read as time"},
		{"JSON by content", doc.value(`{"b":1.0,"a":[1,2]}`), doc.value(`{"a": [1, 2], "b": 1}`), true, "json, by value"},
		{"JSON array order", doc.value(`[1,2]`), doc.value(`[2,1]`), false, ""},
		{"JSON null is a value", doc.value(`null`), Null, false, ""},
		{"JSON large integers", doc.value(`9007199254740993`), doc.value(`9007199254740992`), false, ""},
		{"uuid text and bytes", column{as: KindUUID}.value("0189E4D2-7C1B-7000-8000-00000000000A"), column{as: KindUUID}.value([]byte("\x01\x89\xe4\xd2\x7c\x1b\x70\x00\x80\x00\x00\x00\x00\x00\x00\x0a")), true, "uuid, by value"},
		{"tinyint against boolean", auto.value(int64(1)), auto.value(true), true, "read as bool"},
		{"two is no boolean", auto.value(int64(2)), auto.value(true), false, ""},
		{"trailing space", text.value("a "), text.value("a"), false, ""},
		{"case", text.value("a"), text.value("A"), false, ""},
		{"binary", column{as: KindBinary}.value([]byte{0, 1}), column{as: KindBinary}.value([]byte{0, 1}), true, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, note := Equal(tt.a, tt.b)
			if got != tt.want || note != tt.note {
				t.Errorf("Equal(%v, %v) = %v %q, want %v %q", tt.a, tt.b, got, note, tt.want, tt.note)
			}
			if back, _ := Equal(tt.b, tt.a); back != got {
				t.Errorf("Equal(%v, %v) is not symmetric", tt.a, tt.b)
			}
		})
	}
}

func negativeZero() float64 { zero := 0.0; return -zero }

func FuzzNumber(f *testing.F) {
	for _, seed := range []string{"1", "-0.0", "1.10", "1e5", "0.0001", "12a", ".", "-.5e-3", "00100"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		first, ok := canonicalNumber(text)
		if !ok {
			return
		}
		if again, ok := canonicalNumber(first); !ok || again != first {
			t.Errorf("canonicalNumber(%q) = %q, and of that %q %v", text, first, again, ok)
		}
	})
}

func TestDocumentPath(t *testing.T) {
	document, err := decodeJSON([]byte(`{"a":{"b":[1],"c":null},"n":1.50}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		path, want string
		found      bool
	}{
		{"a.b", "[1]", true}, {"$.n", "1.5", true}, {"a.c", "NULL", true}, {"a.x", "", false}, {"n.x", "", false},
	} {
		node, found := lookup(document, tt.path)
		if found != tt.found {
			t.Errorf("%s: found %v", tt.path, found)
		}
		if got := documentValue(node, column{digits: -1}).String(); found && got != tt.want {
			t.Errorf("%s = %s, want %s", tt.path, got, tt.want)
		}
	}
}
