package waybilltest

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/waybillhq/waybill"
)

// EnvUpdate makes [RequireGolden] write its files instead of comparing: set it
// to 1 and read the difference before committing it.
const EnvUpdate = "WAYBILL_UPDATE"

var randomID = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[1-8][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)

// EventLog writes events as text, one line each: a number, topic, type,
// aggregate, version, what else is set, and the data. What differs from run to
// run is left out or replaced: times, trace contexts, and ids that are UUIDs,
// which are written as "#2" when they are the id of the second event of the
// list and as "uuid" otherwise. An id of the producer's own choice is shown.
func EventLog(events []waybill.Event) string {
	numbers := make(map[string]int, len(events))
	for i := range events {
		if _, twice := numbers[events[i].ID]; !twice {
			numbers[events[i].ID] = i + 1
		}
	}
	reference := func(id string) string {
		if n, ok := numbers[id]; ok {
			return fmt.Sprintf("#%d", n)
		}
		if randomID.MatchString(id) {
			return "uuid"
		}
		return word(id)
	}
	var b strings.Builder
	for i := range events {
		e := &events[i]
		fmt.Fprintf(&b, "#%d %s %s", i+1, word(e.Topic), word(e.Type))
		if e.AggregateType != "" || e.AggregateID != "" {
			fmt.Fprintf(&b, " %s/%s", word(e.AggregateType), word(e.AggregateID))
		}
		if e.AggregateVersion != 0 {
			fmt.Fprintf(&b, " v%d", e.AggregateVersion)
		}
		part := func(name, value string) {
			if value != "" {
				fmt.Fprintf(&b, " %s=%s", name, value)
			}
		}
		if numbers[e.ID] != i+1 {
			part("repeats", reference(e.ID))
		} else if !randomID.MatchString(e.ID) {
			part("id", word(e.ID))
		}
		if e.EffectiveKey() != e.AggregateID {
			part("key", word(e.Key))
		}
		if e.TenantID != "" {
			part("tenant", word(e.TenantID))
		}
		if e.SchemaVersion > 1 {
			part("schema", strconv.Itoa(e.SchemaVersion))
		}
		if e.ContentType != "" && e.ContentType != waybill.DefaultContentType {
			part("content-type", word(e.ContentType))
		}
		if e.Source != "" {
			part("source", word(e.Source))
		}
		if e.CorrelationID != "" {
			part("correlation", reference(e.CorrelationID))
		}
		if e.CausationID != "" {
			part("caused-by", reference(e.CausationID))
		}
		for _, name := range slices.Sorted(maps.Keys(e.Headers)) {
			part(name, word(e.Headers[name]))
		}
		b.WriteString(" " + data(e) + "\n")
	}
	return b.String()
}

// RequireGolden fails the test unless the file testdata/name has this text.
// With WAYBILL_UPDATE=1 in the environment it writes the file instead.
func RequireGolden(t testing.TB, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if os.Getenv(EnvUpdate) == "1" {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatalf("update %s: %v", file, err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatalf("update %s: %v", file, err)
		}
		return
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("read golden file: %v; %s=1 writes it", err, EnvUpdate)
		return
	}
	want := strings.ReplaceAll(string(text), "\r\n", "\n")
	if want == got {
		return
	}
	gotLines, wantLines := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range max(len(gotLines), len(wantLines)) {
		g, w := at(gotLines, i), at(wantLines, i)
		if g != w {
			t.Fatalf("%s differs in line %d; %s=1 updates it\n got %s\nwant %s", file, i+1, EnvUpdate, g, w)
			return
		}
	}
}

func at(lines []string, i int) string {
	if i < len(lines) {
		return strconv.Quote(lines[i])
	}
	return "the end"
}

// word quotes what would not be one word of a line.
func word(text string) string {
	if text == "" || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r == '"' || r == '\\' || !strconv.IsPrint(r) }) {
		return strconv.Quote(text)
	}
	return text
}

// data writes a payload on one line: JSON as it is, anything else quoted.
func data(e *waybill.Event) string {
	text := string(e.Data)
	if _, ok := jsonValue(e.Data); ok && !strings.ContainsAny(text, "\n\r") {
		return text
	}
	return strconv.Quote(text)
}
