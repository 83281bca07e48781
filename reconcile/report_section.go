package reconcile

import (
	"fmt"
	"strings"
	"time"
	"unicode"
)

// section is one class of a report.
type section struct {
	Class    Class
	Count    int
	Oldest   *time.Time
	Findings []Finding // as far as they are listed
	started  time.Time
}

// sections returns the classes that have something, in order.
func (r *Report) sections() (all []section) {
	for _, class := range Classes {
		if r.Counts[class] == 0 {
			continue
		}
		s := section{Class: class, Count: r.Counts[class], started: r.StartedAt}
		if at, known := r.Oldest[class]; known {
			s.Oldest = &at
		}
		for i := range r.Findings {
			if r.Findings[i].Class == class {
				s.Findings = append(s.Findings, r.Findings[i])
			}
		}
		all = append(all, s)
	}
	return all
}

// shown are the findings that people are shown.
func (s *section) shown() []Finding { return s.Findings[:min(len(s.Findings), shownFindings)] }

// more is how many of the listed ones they are not shown.
func (s *section) more() int { return len(s.Findings) - len(s.shown()) }

// headline says how many there are, and since when.
func (s *section) headline() string {
	text := fmt.Sprint(s.Count)
	switch {
	case s.Oldest == nil:
	case s.Count == 1:
		text += fmt.Sprintf(", since %s (%s)", moment(*s.Oldest), roughly(s.started.Sub(*s.Oldest)))
	default:
		text += fmt.Sprintf(", the oldest since %s (%s)", moment(*s.Oldest), roughly(s.started.Sub(*s.Oldest)))
	}
	return text
}

// way is a reason with its next step.
type way struct{ why, next string }

// ways lists the different reasons and next steps of a class, once each.
func (s *section) ways() (all []way) {
	seen := make(map[way]bool)
	for i := range s.Findings {
		f := &s.Findings[i]
		if len(f.Causes) == 0 {
			continue
		}
		w := way{f.Why, nextStep(f.Class, f.Causes[0].Code)}
		if !seen[w] && (w.why != "" || w.next != "") {
			seen[w] = true
			all = append(all, w)
		}
	}
	return all
}

// grid is a table for terminals. Unlike text/tabwriter it knows that an
// ideograph is as wide as two letters.
type grid struct{ rows [][]string }

func (g *grid) add(cells ...string) { g.rows = append(g.rows, cells) }

func (g *grid) write(b *strings.Builder) {
	var widths []int
	for _, row := range g.rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], columnsOfText(cell))
		}
	}
	for _, row := range g.rows {
		line := ""
		for i, cell := range row {
			line += cell
			if i < len(row)-1 {
				line += strings.Repeat(" ", widths[i]-columnsOfText(cell)+2)
			}
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
}

// wide are the runes that take two columns: East Asian wide and full width.
var wide = &unicode.RangeTable{
	R16: []unicode.Range16{
		{0x1100, 0x115F, 1},
		{0x2E80, 0x303E, 1},
		{0x3041, 0x33FF, 1},
		{0x3400, 0x4DBF, 1},
		{0x4E00, 0x9FFF, 1},
		{0xA000, 0xA4CF, 1},
		{0xAC00, 0xD7A3, 1},
		{0xF900, 0xFAFF, 1},
		{0xFE30, 0xFE4F, 1},
		{0xFF00, 0xFF60, 1},
		{0xFFE0, 0xFFE6, 1},
	},
	R32: []unicode.Range32{{0x1F300, 0x1F64F, 1}, {0x1F900, 0x1F9FF, 1}, {0x20000, 0x3FFFD, 1}},
}

func columnsOfText(text string) (n int) {
	for _, r := range text {
		switch {
		case unicode.Is(wide, r):
			n += 2
		case !unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
			n++
		}
	}
	return n
}
