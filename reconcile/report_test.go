package reconcile

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the golden files again")

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
	}
}

// reported is a world with one finding of each class.
func reported(t *testing.T) (*world, func(*Check)) {
	w := newWorld(t)
	for _, key := range []string{"equal", "missing", "orphan", "edited", "lag|ging\x1b[2J", "late"} {
		w.put(key, 2)
	}
	w.log["missing"] = w.log["missing"][:1]
	delete(w.write, "orphan")
	w.write["edited"].Values = []Value{Null}
	w.read["lag|ging\x1b[2J"].Version = 1
	w.log["late"] = append(w.log["late"], recent(event(3, "s", StatePending)))
	w.write["late"].Version = 3
	w.read["unread"] = row(1, "s")
	w.fail = func(arm string, r Range) error {
		if arm == "read" && r.Contains(textKey(t, "unread")) {
			return os.ErrDeadlineExceeded
		}
		return nil
	}
	w.write["equal"].Values = []Value{parseValue(KindNumber, "1.10", 0)}
	w.log["equal"][1].Values = []Value{parseValue(KindNumber, "1.1", 0)}
	w.read["equal"].Values = []Value{parseValue(KindNumber, "1.1", 0)}
	return w, func(c *Check) { c.ChunkRows, c.Confirm = 3, []time.Duration{0} }
}

func TestReportForPeople(t *testing.T) {
	w, change := reported(t)
	report := w.run(change)
	golden(t, "report.txt", report.Text())
	golden(t, "report.md", report.Markdown())
}

func TestReportForPrograms(t *testing.T) {
	w, change := reported(t)
	text, err := json.MarshalIndent(w.run(change), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "report.json", string(text)+"\n")
}

func TestStory(t *testing.T) {
	w, change := reported(t)
	w.fates["edited-2"] = Consumed{Fate: FateApplied}
	text := ""
	for _, key := range []string{"equal", "missing", "edited", "late", "nobody"} {
		story, err := w.engine(change).Explain(t.Context(), []string{key})
		if err != nil {
			t.Fatal(err)
		}
		text += story.Text()
	}
	golden(t, "story.txt", text)
}

func TestATableKeepsItsColumnsWhateverTheScript(t *testing.T) {
	var table grid
	table.add("订单-1", "a", "x")
	table.add("é-1", "bb", "x")
	table.add("plain", "", "")
	var b strings.Builder
	table.write(&b)
	if got, want := b.String(), "订单-1  a   x\né-1     bb  x\nplain\n"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestTheKeyInACommandIsOneWordOfTheShell(t *testing.T) {
	for text, want := range map[string]string{
		"O-1": "O-1", "": "''", "a b": "'a b'", "it's": `'it'\''s'`, "-x": "-- '-x'", "$(rm)": "'$(rm)'", "订单": "'订单'",
		"a\x1b'\\": `$'a\x1b\'\\'`,
	} {
		if got := forKey("explain KEY", textKey(t, text)); got != "explain "+want {
			t.Errorf("%q: got %s, want %s", text, got, want)
		}
	}
	pair, err := NewKey([]KeyKind{KeyText, KeyInteger}, []any{"tenant 7", int64(5)})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := forKey("explain KEY", pair), "explain 'tenant 7' 5"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestEachFindingSaysSinceWhen(t *testing.T) {
	w := newWorld(t)
	ago := func(d time.Duration) time.Time { return testNow.Add(-d) }
	for _, key := range []string{"lost", "stuck", "edited", "behind"} {
		w.put(key, 3)
		w.write[key].UpdatedAt = ago(40 * time.Minute)
		for i := range w.log[key] {
			w.log[key][i].CreatedAt = ago(time.Duration(100-i*10) * time.Minute)
		}
	}
	w.log["lost"] = w.log["lost"][:2]
	w.log["stuck"][2].State = StatePending
	w.write["edited"].Values = status("other")
	w.read["behind"].Version = 1
	report := w.run(nil)
	want := map[string]int{"lost": 40, "stuck": 80, "edited": 40, "behind": 90}
	for _, f := range report.Findings {
		if f.Since == nil || !f.Since.Equal(ago(time.Duration(want[f.Key])*time.Minute)) {
			t.Errorf("%s %s: since %v, want %d minutes ago", f.Class, f.Key, f.Since, want[f.Key])
		}
	}
	if len(report.Findings) != len(want) || !report.Oldest[MissingEvent].Equal(ago(80*time.Minute)) {
		t.Errorf("%v, oldest %v", listed(report), report.Oldest)
	}
}

func TestAStoryIsToldInOrderOfTime(t *testing.T) {
	w := newWorld(t)
	w.put("a", 3)
	minutes := func(n int) time.Time { return testNow.Add(time.Duration(n-60) * time.Minute) }
	for i, e := range []struct{ created, sent int }{{0, 1}, {10, 30}, {20, 0}} {
		w.log["a"][i].CreatedAt = minutes(e.created)
		if e.sent > 0 {
			w.log["a"][i].SentAt = minutes(e.sent)
		}
	}
	w.log["a"][2].State = StatePending
	w.read["a"] = row(1, "s")
	w.read["a"].UpdatedAt, w.write["a"].UpdatedAt = minutes(2), minutes(40)
	w.fates["a-2"] = Consumed{Fate: FateDead, Error: "no stock"}
	story, err := w.engine(nil).Explain(t.Context(), []string{"a"})
	if err != nil {
		t.Fatal(err)
	}
	got := ""
	for _, m := range story.Timeline {
		got += m.Arm + ": " + strings.Fields(m.Text)[0] + " " + strings.Fields(m.Text)[1] + "\n"
	}
	want := "log: v1 SENT\nlog: a-1 sent\nread model: v1 status=\"s\"\nlog: v2 SENT\nconsumer: a-2 DEAD:\nlog: v3 PENDING\nlog: a-2 sent\nrow: v3 status=\"s\"\n"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestTheTrendIsShownDayByDay(t *testing.T) {
	w := newWorld(t)
	w.put("a", 1)
	report := w.run(nil)
	report.Trend = []Day{{"2026-02-28", map[Class]int{MissingEvent: 12, InFlight: 3}}, {"2026-03-01", map[Class]int{MissingEvent: 1}}}
	want := "test: 0 differences, 0 in flight; 1 keys compared\n\nDay by day from 2026-02-28 to 2026-03-01:\n  MISSING_EVENT  12  1\n  IN_FLIGHT      3   0\n"
	if got := report.Text(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got, want := report.Markdown(), "\n| 2026-02-28 | 12 | 0 | 0 | 0 | 3 | 0 |\n| 2026-03-01 | 1 | 0 | 0 | 0 | 0 | 0 |\n"; !strings.Contains(got, want) {
		t.Errorf("got\n%s\nwant in it\n%s", got, want)
	}
	report.Trend = []Day{{"2026-02-28", nil}, {"2026-03-01", nil}}
	if got, want := report.Text(), "Nothing was found from 2026-02-28 to 2026-03-01.\n"; !strings.HasSuffix(got, want) {
		t.Errorf("got %s, want at its end %s", got, want)
	}
}

func TestAReportRecallsWhatIsOnRecord(t *testing.T) {
	w := newWorld(t)
	w.put("a", 2)
	w.put("b", 2)
	w.log["a"], w.log["b"] = w.log["a"][:1], w.log["b"][:1]
	report := w.run(nil)
	seen := testNow.Add(-24 * time.Hour)
	report.Recall([]FindingRecord{{ID: "F-1", Class: MissingEvent, Side: WriteSide, Key: "b", FirstSeen: seen}, {ID: "F-2", Class: MismatchRead, Side: ReadSide, Key: "a"}})
	if a, b := &report.Findings[0], &report.Findings[1]; a.ID != "" || a.FirstSeen != nil || b.ID != "F-1" || !b.FirstSeen.Equal(seen) {
		t.Errorf("recalled %+v and %+v", a, b)
	}
}
