package reconcile

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"unicode"
)

// Summary returns the report in one line.
func (r *Report) Summary() string {
	parts := []string{fmt.Sprintf("%d differences, %d in flight", r.Differences, r.InFlight)}
	if r.Unverified > 0 {
		parts = append(parts, fmt.Sprintf("%d unverified", r.Unverified))
	}
	if r.Healed > 0 {
		parts = append(parts, fmt.Sprintf("%d healed while looking", r.Healed))
	}
	return fmt.Sprintf("%s: %s; %d keys compared", oneLine(r.Check), strings.Join(parts, ", "), r.Keys)
}

// Text returns the report as a table for terminals.
func (r *Report) Text() string {
	var b strings.Builder
	b.WriteString(r.Summary() + "\n")
	if len(r.Findings) > 0 {
		b.WriteString("\n")
		table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		for i := range r.Findings {
			f := &r.Findings[i]
			fmt.Fprintf(table, "%s\t%s\t%s\n", f.Class, oneLine(f.Key), oneLine(f.Detail))
		}
		_ = table.Flush()
	}
	if r.LeftOut > 0 {
		fmt.Fprintf(&b, "(%d more are counted, but not listed)\n", r.LeftOut)
	}
	for _, advice := range r.advice() {
		b.WriteString("  -> " + advice + "\n")
	}
	for _, line := range r.remarks() {
		b.WriteString(line + "\n")
	}
	return b.String()
}

// Markdown returns the report for an issue or a chat.
func (r *Report) Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "## %s\n\n%s, %s to %s.\n", markdownCell(r.Check), markdownCell(r.Summary()), moment(r.StartedAt), moment(r.FinishedAt))
	b.WriteString("\n| class | count |\n| --- | --- |\n")
	for _, class := range Classes {
		fmt.Fprintf(&b, "| %s | %d |\n", class, r.Counts[class])
	}
	if len(r.Findings) > 0 {
		b.WriteString("\n| class | key | what | next |\n| --- | --- | --- | --- |\n")
		for i := range r.Findings {
			f := &r.Findings[i]
			fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", f.Class, markdownCell(f.Key), markdownCell(f.Detail), markdownCell(f.Next))
		}
	}
	for _, line := range r.remarks() {
		b.WriteString("\n" + markdownCell(line) + "\n")
	}
	return b.String()
}

// advice lists what to do next, once each.
func (r *Report) advice() (all []string) {
	seen := make(map[string]bool)
	for i := range r.Findings {
		f := &r.Findings[i]
		if f.Next == "" || seen[f.Next] || f.Class == InFlight {
			continue
		}
		seen[f.Next] = true
		all = append(all, string(f.Class)+": "+f.Next)
	}
	return all
}

// remarks are what qualifies the result.
func (r *Report) remarks() (lines []string) {
	if !r.Coverage.Complete {
		lines = append(lines, fmt.Sprintf("Not all was compared: %d of %d ranges or keys could not be read.", len(r.Coverage.Failed), r.Coverage.Ranges))
	}
	if r.Unconfirmed > 0 {
		lines = append(lines, fmt.Sprintf("%d findings were too many to be looked at again.", r.Unconfirmed))
	}
	if r.Split {
		lines = append(lines, "Row and log are in two databases and were not read in one snapshot: what looks missing may just have been written.")
	}
	for _, blind := range r.Blind {
		lines = append(lines, "Cannot be seen: "+blind+".")
	}
	for _, n := range r.Normalised {
		lines = append(lines, fmt.Sprintf("Equal by value only: %s, %d times (%s).", oneLine(n.Column), n.Count, n.How))
	}
	return lines
}

// oneLine keeps a terminal from obeying what it is shown.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == unicode.ReplacementChar {
			return '?'
		}
		return r
	}, text)
}

func markdownCell(text string) string {
	return strings.NewReplacer("|", `\|`, "<", "&lt;", "`", "'").Replace(oneLine(text))
}
