package reconcile

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// dice makes facts of one key, as rows of the three arms and as Judge takes them.
type dice struct {
	*rand.Rand
	check *Check
	t     *tables
	desk  *desk
}

func (d *dice) one(of ...any) any { return of[d.IntN(len(of))] }

// some returns a value as a driver may; the pairs are equal by value only.
func (d *dice) some() any {
	return d.one("a", "a", "a", []byte("a"), "b", nil, "", "1.10", "1.1", int64(1), time.Unix(7, 0).UTC(), "1970-01-01T00:00:07Z", true)
}

// text is what a server may write, of types whose values are told by their texts.
func (d *dice) text() any {
	return d.one("a", "a", "a", "b", nil, "", "1.10", "1.1", "1", "1970-01-01T00:00:07Z")
}

// layout has the compared columns from one on. Every other sheet has texts.
func (d *dice) layout(s *sheet, first int) {
	s.texts = texts{on: d.IntN(2) == 0}
	s.width = first + len(d.check.Compare)
	s.version, s.removed, s.state, s.event, s.payload = 1, -1, -1, -1, -1
	s.types = make([]column, s.width)
	for i := range s.types {
		s.types[i].digits = -1
		if s.texts.on {
			s.types[i].database = d.one("TEXT", "TEXT", "TEXT", "NUMERIC").(string)
		}
	}
	s.compared = s.compared[:0]
	for i := range d.check.Compare {
		s.compared = append(s.compared, first+i)
	}
	s.cells, s.orders, s.ends, s.marks = nil, nil, nil, nil
	s.resolve(d.t)
}

// row adds a row to a sheet and returns it as Judge knows it.
func (d *dice) row(s *sheet, removable bool) *Row {
	cells := []any{"k", int64(1 + d.IntN(3)), nil}
	if removable && !s.texts.on {
		s.removed = 2
		cells[2] = d.one(nil, nil, nil, true)
	}
	row := &Row{Version: cells[1].(int64), Deleted: markAt(s.types, cells, s.removed)}
	for i := range d.check.Compare {
		cells = append(cells, d.value(s))
		row.Values = append(row.Values, d.t.valueAt(s.types, cells, 3+i, i))
	}
	d.put(s, cells, nil)
	return row
}

func (d *dice) value(s *sheet) any {
	if s.texts.on {
		return d.text()
	}
	return d.some()
}

func (d *dice) put(s *sheet, cells []any, fold fold) {
	order, err := appendOrder(nil, d.t.kinds, cells)
	switch {
	case err != nil:
	case s.texts.on:
		var values [][]byte
		for _, cell := range cells {
			if cell == nil {
				values = append(values, nil)
				continue
			}
			values = append(values, append([]byte{}, fmt.Sprint(cell)...))
		}
		if err = s.texts.add(values); err == nil {
			err = s.keep(order, fold)
		}
	default:
		s.cells = append(s.cells, cells...)
		err = s.keep(order, fold)
	}
	if err != nil {
		panic(err)
	}
}

// events adds events in the order of a statement that sorts by version.
func (d *dice) events() (events []Event) {
	s := &d.desk.log
	d.layout(s, 4)
	s.state, s.event = 2, 3
	for version := int64(1); version <= 3; version++ {
		for range d.one(0, 1, 1, 1, 1, 2).(int) {
			state := d.one("SENT", "SENT", "SENT", "SENT", "PENDING", "DEAD").(string)
			cells := []any{"k", version, state, d.one("changed", "changed", "changed", "deleted")}
			e := Event{ID: fmt.Sprint("e", len(events)), Version: version, Word: state, State: d.check.Log.state(state), Delete: cells[3] == "deleted"}
			for i := range d.check.Compare {
				cells = append(cells, d.value(s))
				e.Values = append(e.Values, d.t.valueAt(s.types, cells, 4+i, i))
			}
			d.put(s, cells, d.desk.prover.newer)
			events = append(events, e)
		}
	}
	return events
}

// TestWhatIsProvedHasNoVerdict throws dice for the arms of a key: what a page
// takes for proved must have no verdict of Judge's, and the same remarks.
func TestWhatIsProvedHasNoVerdict(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 7))
	proved := map[string]int{}
	for range 80_000 {
		arms := random.IntN(4)
		check := Check{
			Name: "dice", Key: []KeyPart{{Name: "id"}}, Compare: []Column{{Name: "x"}, {Name: "y", As: []Kind{KindAuto, KindNumber, KindTime}[random.IntN(3)]}},
			Write: &Table{Table: "w", Version: "version"}, Read: &Table{Table: "r", Version: "version"},
			Log:     &Log{Table: Table{Table: "l", Version: "version"}, State: "state", Type: "kind", Deletes: []string{"deleted"}},
			Density: []string{"latest", "every_version"}[random.IntN(2)], Events: []string{"state", "state", "delta"}[random.IntN(3)],
		}
		switch arms {
		case 1:
			check.Write = nil
		case 2:
			check.Log = nil
		case 3:
			check.Read = nil
		}
		c, err := check.withDefaults()
		if err != nil {
			t.Fatal(err)
		}
		tt := &tables{check: c, kinds: c.kinds()}
		d := &dice{Rand: random, check: c, t: tt, desk: newDesk(tt)}
		facts := Facts{Key: textKey(t, "k")}
		for _, s := range []*sheet{&d.desk.write, &d.desk.read} {
			d.layout(s, 3)
		}
		if c.Log != nil {
			facts.Log = d.events()
		}
		if c.Write != nil && random.IntN(6) > 0 {
			facts.Write = d.row(&d.desk.write, true)
		}
		if c.Read != nil && random.IntN(6) > 0 {
			facts.Read = d.row(&d.desk.read, true)
		}
		if facts.Write == nil && facts.Read == nil && facts.Log == nil {
			continue
		}
		found := d.desk.prover.page(Range{}, &digested{}, &digested{})
		if found.err != nil {
			t.Fatal(found.err)
		}
		if len(found.doubtful) > 0 {
			continue
		}
		kind := fmt.Sprintf("arms %d, %s, %s", arms, c.Density, c.Events)
		proved[kind]++
		r := &run{Engine: &Engine{check: c}, rules: c.rules(), notes: map[note]int{}}
		r.rules.Now = testNow
		if write, read := Judge(&facts, &r.rules); write != nil || read != nil {
			t.Fatalf("%s: proved, but %+v, %+v:\n%+v\nrow %+v\nread %+v", kind, write, read, facts.Log, facts.Write, facts.Read)
		}
		if top := last(facts.Log, every); top != nil && top.Delete {
			continue // what is gone is not looked at
		}
		r.observe(&facts)
		if got, want := fmt.Sprint(found.notes), fmt.Sprint(r.notes); got != want {
			t.Fatalf("%s: remarks %s, want %s", kind, got, want)
		}
		if found.keys != 1 || found.rows.Log != int64(len(facts.Log)) {
			t.Fatalf("%d keys, %+v rows, %d events", found.keys, found.rows, len(facts.Log))
		}
	}
	if len(proved) != 16-2 && len(proved) != 16 {
		t.Errorf("not every kind of check had a proof: %v", proved)
	}
	for kind, n := range proved {
		if n < 5 {
			t.Errorf("%s: only %d proofs", kind, n)
		}
	}
}

// TestOrderOfRowsIsTheOrderOfKeys has both ways to make what keys compare by
// agree on what drivers return.
func TestOrderOfRowsIsTheOrderOfKeys(t *testing.T) {
	uuid := "0190A5f0-0000-7000-8000-00000000abCD"
	for _, tt := range []struct {
		kinds []KeyKind
		parts []any
	}{
		{[]KeyKind{KeyText}, []any{"a"}},
		{[]KeyKind{KeyText}, []any{[]byte("a\x00b")}},
		{[]KeyKind{KeyText}, []any{"\x00"}},
		{[]KeyKind{KeyText}, []any{int64(7)}},
		{[]KeyKind{KeyBinary}, []any{[]byte{0, 1, 255}}},
		{[]KeyKind{KeyBinary}, []any{[]byte{}}},
		{[]KeyKind{KeyInteger}, []any{int64(-1)}},
		{[]KeyKind{KeyInteger}, []any{uint64(1 << 63)}},
		{[]KeyKind{KeyInteger}, []any{"007"}},
		{[]KeyKind{KeyInteger}, []any{[]byte("-12")}},
		{[]KeyKind{KeyUUID}, []any{uuid}},
		{[]KeyKind{KeyUUID}, []any{[]byte(uuid)}},
		{[]KeyKind{KeyUUID}, []any{uuidBytes("0190a5f0-0000-7000-8000-00000000abcd")}},
		{[]KeyKind{KeyUUID}, []any{"{" + uuid + "}"}},
		{[]KeyKind{KeyText, KeyInteger, KeyUUID}, []any{"a", int64(3), uuid}},
	} {
		key, err := NewKey(tt.kinds, tt.parts)
		if err != nil {
			t.Fatal(err)
		}
		if order, err := appendOrder(nil, tt.kinds, tt.parts); err != nil || string(order) != key.order {
			t.Errorf("%v: %x, %v, want %x", tt.parts, order, err, key.order)
		}
	}
	for _, parts := range [][]any{{nil}, {"x"}, {"0190A5f0-0000-7000-8000-00000000abCX"}, {"0190A5f000000-7000-8000-00000000abCD"}} {
		if order, err := appendOrder(nil, []KeyKind{KeyUUID}, parts); err == nil {
			t.Errorf("%v is taken for a UUID: %x", parts, order)
		}
	}
}

// TestCellsComeBackFromAFile has a part's rows survive the file as they are.
func TestCellsComeBackFromAFile(t *testing.T) {
	at := time.Date(2026, 5, 1, 12, 0, 0, 123456789, time.FixedZone("", 7200))
	cells := []any{nil, true, false, int64(-5), uint64(1 << 63), 1.5, float32(2.5), "", "text\x00", []byte{}, []byte{0, 255}, at}
	var record []byte
	for _, cell := range cells {
		var err error
		if record, err = appendCell(record, cell); err != nil {
			t.Fatal(err)
		}
	}
	for _, cell := range cells {
		got, rest, err := readCell(record)
		if moment, ok := cell.(time.Time); ok && err == nil && moment.Equal(got.(time.Time)) {
			got = cell
		}
		if err != nil || fmt.Sprintf("%T %v", got, got) != fmt.Sprintf("%T %v", cell, cell) {
			t.Fatalf("got %T %v, %v, want %T %v", got, got, err, cell, cell)
		}
		record = rest
	}
	if _, err := appendCell(nil, struct{}{}); err == nil {
		t.Error("a value that no driver returns was kept")
	}
	for n := range 3 {
		if _, _, err := readCell(slices.Concat([]byte{cellText, 3}, []byte("abc")[:n])); err == nil {
			t.Errorf("%d bytes of 3 were enough", n)
		}
	}
}

// FuzzLiterals holds the walk over a document against its decoding.
func FuzzLiterals(f *testing.F) {
	for _, seed := range []string{
		`{"a":1}`, `{"a":{"b":"x"},"c":[1,{"a":2}]}`, ` {"a" : 1.50 , "a b":null}`, `{"a":"\u0041"}`, `{"a":1,"a":2}`, `{"\u0061":1}`, `[1]`, `{"a":01}`, `{"a":{"b":1},"c":"ä"}`,
		`{"a":"` + "\xff" + `"}`, `{}`, ``, `nul`, `{"a":1}x`, `{"a":-0.0e+5,"c":true}`, `{"a":{"b":{"c":1}}}`,
	} {
		f.Add(seed)
	}
	paths := [][]string{{"a"}, {"a", "b"}, {"c"}}
	f.Fuzz(func(t *testing.T, text string) {
		found := make([]literal, len(paths))
		if !literals([]byte(text), paths, found) {
			return
		}
		document, err := decodeJSON([]byte(text))
		if err != nil {
			t.Fatalf("%q is no JSON: %v", text, err)
		}
		for i, path := range []string{"a", "a.b", "c"} {
			c := column{digits: -1}
			want := Null
			if node, ok := lookup(document, path); ok {
				want = documentValue(node, c)
			}
			if got := found[i].value(c); got != want {
				t.Fatalf("%q: %s is %+v, want %+v", text, path, got, want)
			}
			for _, other := range []any{nil, "x", "1", []byte("1.50"), int64(1), "ä"} {
				kind := KindText
				if _, ok := other.([]byte); ok {
					kind = KindNumber
				}
				if _, ok := other.(int64); ok {
					kind = KindNumber
				}
				value := column{as: kind, digits: -1}.value(other)
				if equal, how := Equal(want, value); found[i].same(c, kind, other) && (!equal || how != "") {
					t.Fatalf("%q: %s is taken for %v, and is %+v", text, path, other, want)
				}
			}
		}
	})
}
