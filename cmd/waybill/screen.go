package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/waybillhq/waybill/cmd/waybill/internal/logging"
	"github.com/waybillhq/waybill/ops"
)

// screen is what is known of where the output goes.
type screen struct {
	width int  // columns; 0 means that nothing is cut
	color bool // colours are shown
}

// newScreen looks at a writer: files and pipes get whole lines without colours.
func newScreen(w io.Writer) screen {
	if !logging.IsTerminal(w) {
		return screen{}
	}
	s := screen{width: terminalWidth(w), color: os.Getenv("NO_COLOR") == ""}
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 0 {
		s.width = n
	}
	return s
}

// minElastic is what a cut column keeps at least.
const minElastic = 16

// table renders rows under a header. Where it is wider than the screen, its last
// column is cut: ids in the others stay whole, so they can be copied.
func (s screen) table(header []string, rows [][]string) string {
	widths := make([]int, len(header))
	for _, row := range append([][]string{header}, rows...) {
		for i, cell := range row {
			widths[i] = max(widths[i], text.StringWidth(cell))
		}
	}
	last := len(header) - 1
	if s.width > 0 {
		room := s.width
		for _, w := range widths[:last] {
			room -= w + 2
		}
		widths[last] = min(widths[last], max(room, minElastic))
	}
	var b strings.Builder
	for _, row := range append([][]string{header}, rows...) {
		var line strings.Builder
		for i, cell := range row {
			if i == last {
				line.WriteString(text.Snip(cell, widths[last], "…"))
				break
			}
			line.WriteString(cell + strings.Repeat(" ", widths[i]-text.StringWidth(cell)+2))
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	return b.String()
}

// state colours a state's name.
func (s screen) state(name, shown string) string {
	if !s.color {
		return shown
	}
	code := "32"
	switch name {
	case ops.Yellow:
		code = "33"
	case ops.Red:
		code = "31"
	}
	return "\x1b[1;" + code + "m" + shown + "\x1b[0m"
}

// oneLine makes a text fit into a cell.
func oneLine(value string) string {
	return strings.Join(strings.FieldsFunc(value, func(r rune) bool { return r < ' ' || r >= 0x7f && r < 0xa0 }), " ")
}

// printable removes what a terminal would obey: an event's texts are another's.
func printable(value string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' || r >= 0x7f && r < 0xa0 {
			return '\uFFFD'
		}
		return r
	}, value)
}

// fields renders names and values below each other; empty ones are left out.
func fields(pairs ...string) string {
	var b strings.Builder
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			fmt.Fprintf(&b, "%-14s %s\n", pairs[i], strings.ReplaceAll(printable(pairs[i+1]), "\n", "\n"+strings.Repeat(" ", 15)))
		}
	}
	return b.String()
}
