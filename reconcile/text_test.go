package reconcile

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
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
