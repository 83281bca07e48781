package main

import (
	"strings"
	"testing"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/waybillhq/waybill/ops"
)

func TestTablesFitTheScreen(t *testing.T) {
	header := []string{"event", "key", "last error"}
	rows := [][]string{
		{"0198c5c4-6f0a-7d4e-8a3c-5a6d1c2b3e4f", "O-1", strings.Repeat("the broker said no, ", 20)},
		{"e2", "订单-1001", "没有这样的商品,请检查库存并重试" + strings.Repeat("长", 60)},
	}
	out := screen{width: 80}.table(header, rows)
	lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	column := -1
	for i, line := range lines {
		if w := text.StringWidth(line); w > 80 {
			t.Errorf("line %d is %d wide:\n%s", i, w, line)
		}
		// Columns stand below each other whatever the width of the characters.
		cells := strings.SplitN(line, "  ", 2)
		rest := text.StringWidth(cells[0]) + 2 + len(cells[1]) - len(strings.TrimLeft(cells[1], " "))
		if column < 0 {
			column = rest
		}
		if rest != column {
			t.Errorf("line %d: the second column begins at %d, want %d\n%s", i, rest, column, out)
		}
	}
	if !strings.Contains(out, rows[0][0]) || !strings.Contains(out, rows[1][1]) || strings.Count(out, "…") != 2 {
		t.Errorf("ids must stay whole, and what is cut must show it:\n%s", out)
	}
}

func TestNothingIsCutOrColouredInAFile(t *testing.T) {
	long := strings.Repeat("x", 500)
	s := newScreen(&strings.Builder{})
	if out := s.table([]string{"a", "b"}, [][]string{{"1", long}}); !strings.Contains(out, long) {
		t.Errorf("cut:\n%s", out)
	}
	if got := s.state(ops.Red, "RED"); got != "RED" {
		t.Errorf("coloured: %q", got)
	}
	if got := (screen{color: true}).state(ops.Red, "RED"); got != "\x1b[1;31mRED\x1b[0m" {
		t.Errorf("got %q", got)
	}
}

// Texts of events are another's: they must not steer the terminal of whoever
// reads them.
func TestTextsCannotSteerTheTerminal(t *testing.T) {
	evil := "a\x1b[2J\r\nb\u009b31m"
	for _, got := range []string{oneLine(evil), printable(evil)} {
		if strings.ContainsAny(got, "\x1b\r\u009b") {
			t.Errorf("got %q", got)
		}
	}
	if got := printable("one\ttwo\n三"); got != "one\ttwo\n三" {
		t.Errorf("got %q", got)
	}
}
