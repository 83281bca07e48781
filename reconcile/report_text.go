package reconcile

import (
	"fmt"
	"strings"
	"time"
	"unicode"
)

// shownFindings is how many findings of a class people are shown; programs get
// all that the report lists.
const shownFindings = 50

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

// Text returns the report as a table for terminals, and below it for each
// class how many there are, since when, why and what to do.
func (r *Report) Text() string {
	var b strings.Builder
	b.WriteString(r.Summary() + "\n")
	if len(r.Findings) > 0 {
		b.WriteString("\n")
		var table grid
		for _, class := range r.sections() {
			for i := range class.shown() {
				f := &class.Findings[i]
				table.add(string(f.Class), oneLine(f.Key), r.ago(f.Since), oneLine(f.Detail))
			}
			if more := class.more(); more > 0 {
				table.add(string(class.Class), "...", "", fmt.Sprintf("and %d more; --json lists them", more))
			}
		}
		table.write(&b)
	}
	if r.LeftOut > 0 {
		fmt.Fprintf(&b, "(%d more are counted, but not listed)\n", r.LeftOut)
	}
	for _, class := range r.sections() {
		fmt.Fprintf(&b, "\n%s: %s\n", class.Class, class.headline())
		for _, way := range class.ways() {
			fmt.Fprintf(&b, "  why  %s\n  do   %s\n", way.why, way.next)
		}
	}
	if lines := append(r.trendLines(), r.remarks()...); len(lines) > 0 {
		b.WriteString("\n" + strings.Join(lines, "\n") + "\n")
	}
	return b.String()
}

// Markdown returns the report for an issue or a chat.
func (r *Report) Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "## %s\n\n%s, %s to %s.\n", markdownCell(r.Check), markdownCell(r.Summary()), moment(r.StartedAt), moment(r.FinishedAt))
	b.WriteString("\n| class | count | oldest |\n| --- | --- | --- |\n")
	for _, class := range Classes {
		oldest := ""
		if at, known := r.Oldest[class]; known {
			oldest = moment(at)
		}
		fmt.Fprintf(&b, "| %s | %d | %s |\n", class, r.Counts[class], oldest)
	}
	for _, class := range r.sections() {
		fmt.Fprintf(&b, "\n### %s\n\n%s\n\n| key | since | what | why | next |\n| --- | --- | --- | --- | --- |\n", class.Class, meanings[class.Class])
		for i := range class.shown() {
			f := &class.Findings[i]
			since := ""
			if f.Since != nil {
				since = moment(*f.Since)
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", markdownCell(f.Key), since, markdownCell(f.Detail), markdownCell(f.Why), markdownCell(f.Next))
		}
		if more := class.more(); more > 0 {
			fmt.Fprintf(&b, "\nAnd %d more.\n", more)
		}
	}
	if len(r.Trend) > 0 {
		days := r.trend()
		b.WriteString("\n| day |")
		for _, class := range Classes {
			b.WriteString(" " + string(class) + " |")
		}
		b.WriteString("\n| --- |" + strings.Repeat(" --- |", len(Classes)) + "\n")
		for _, day := range days {
			fmt.Fprintf(&b, "| %s |", markdownCell(day.Date))
			for _, class := range Classes {
				fmt.Fprintf(&b, " %d |", day.Counts[class])
			}
			b.WriteString("\n")
		}
	}
	for _, line := range r.remarks() {
		b.WriteString("\n" + markdownCell(line) + "\n")
	}
	return b.String()
}

// trendDays is how many days people are shown.
const trendDays = 14

func (r *Report) trend() []Day { return r.Trend[max(0, len(r.Trend)-trendDays):] }

// trendLines show the counts of each class over the last days, oldest first.
func (r *Report) trendLines() []string {
	days := r.trend()
	if len(days) < 2 {
		return nil
	}
	var table grid
	for _, class := range Classes {
		counts, some := make([]string, len(days)), false
		for i, day := range days {
			counts[i] = fmt.Sprint(day.Counts[class])
			some = some || day.Counts[class] > 0
		}
		if some {
			table.add(append([]string{"  " + string(class)}, counts...)...)
		}
	}
	if len(table.rows) == 0 {
		return []string{fmt.Sprintf("Nothing was found from %s to %s.", days[0].Date, days[len(days)-1].Date)}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Day by day from %s to %s:\n", days[0].Date, days[len(days)-1].Date)
	table.write(&b)
	return []string{strings.TrimRight(b.String(), "\n")}
}

// remarks are all that is to be said beside the findings.
func (r *Report) remarks() []string { return append(r.qualified(), r.normalised()...) }

// qualified says what limits the result.
func (r *Report) qualified() (lines []string) {
	if !r.Coverage.Complete {
		lines = append(lines, fmt.Sprintf("Not all was compared: %d of %d ranges or keys could not be read.", len(r.Coverage.Failed), r.Coverage.Ranges))
	}
	if r.Unconfirmed > 0 {
		lines = append(lines, fmt.Sprintf("%d findings were too many to be looked at again.", r.Unconfirmed))
	}
	if r.Split {
		lines = append(lines, "Row and log are in two databases and were not read in one snapshot: what looks missing may just have been written.")
	}
	for _, arm := range r.Unindexed {
		lines = append(lines, "Read as a whole: "+oneLine(arm)+".")
	}
	for _, blind := range r.Blind {
		lines = append(lines, "Cannot be seen: "+blind+".")
	}
	return lines
}

// normalised says what was equal by value only.
func (r *Report) normalised() (lines []string) {
	for _, n := range r.Normalised {
		lines = append(lines, fmt.Sprintf("Equal by value only: %s, %d times (%s).", oneLine(n.Column), n.Count, n.How))
	}
	return lines
}

// ago returns how long before the report's start a time was, roughly.
func (r *Report) ago(at *time.Time) string {
	if at == nil {
		return "-"
	}
	return roughly(r.StartedAt.Sub(*at))
}

// roughly writes a duration in its largest unit.
func roughly(d time.Duration) string {
	switch {
	case d < time.Second:
		return "0 s"
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	}
	return fmt.Sprintf("%d d", int(d.Hours()/24))
}

// oneLine keeps a terminal from obeying what it is shown.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == unicode.ReplacementChar {
			return '?'
		}
		return r
	}, text)
}

func markdownCell(text string) string {
	return strings.NewReplacer("|", `\|`, "<", "&lt;", "`", "'").Replace(oneLine(text))
}
