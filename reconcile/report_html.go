package reconcile

import (
	"crypto/sha256"
	_ "embed" // the page
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"
)

//go:embed report.html
var pageText string

//go:embed report.css
var pageStyle string

var reportPage = template.Must(template.New("report").Parse(pageText))

// WriteHTML writes reports as one page that stands by itself: it loads nothing,
// runs no script, and its policy allows no other style than its own, so it may
// be mailed, kept with an incident, or served under a strict policy. It holds
// values of the tables compared.
func WriteHTML(w io.Writer, reports []*Report) error {
	sum := sha256.Sum256([]byte(pageStyle))
	view := pageView{
		Style:     template.CSS(pageStyle), // ours
		StyleHash: "sha256-" + base64.StdEncoding.EncodeToString(sum[:]),
	}
	var names []string
	for i, report := range reports {
		view.Reports = append(view.Reports, viewReport(report, fmt.Sprintf("check-%d", i+1)))
		names = append(names, oneLine(report.Check))
	}
	view.Title = strings.Join(names, ", ")
	if len(reports) > 0 {
		view.Title += ", " + moment(reports[0].StartedAt)
	}
	return reportPage.Execute(w, &view)
}

type pageView struct {
	Title     string
	Style     template.CSS
	StyleHash string
	Reports   []reportView
}

type reportView struct {
	Anchor, Check, Headline, Tone, Started, Finished string
	Differences, InFlight, Unverified, Healed        int
	Keys                                             int64
	Rows                                             RowCounts
	Remarks, Notes                                   []string
	Classes                                          []classView
	Trend                                            *trendView
	LeftOut                                          int
}

type classView struct {
	Class                           Class
	Anchor, Tone, Meaning, Headline string
	Count, More                     int
	Oldest                          string
	Ways                            []wayView
	Findings                        []findingView
}

type wayView struct{ Why, Next string }

type findingView struct {
	Key, Age, Detail, Since, FirstSeen, Why, Next string
	Open                                          bool
	Causes                                        []Cause
	Arms                                          []string
	Lines                                         []valueLine
	Commands                                      []string
}

// valueLine is what each arm says of one thing.
type valueLine struct {
	Name    string
	Cells   []string
	Differs bool
}

func viewReport(r *Report, anchor string) reportView {
	view := reportView{
		Anchor: anchor, Check: oneLine(r.Check), Started: moment(r.StartedAt), Finished: moment(r.FinishedAt),
		Differences: r.Differences, InFlight: r.InFlight, Unverified: r.Unverified, Healed: r.Healed, Keys: r.Keys, Rows: r.Rows,
		LeftOut: r.LeftOut, Trend: viewTrend(r.trend()),
	}
	view.Remarks, view.Notes = r.qualified(), r.normalised()
	switch {
	case r.Differences > 0:
		view.Tone, view.Headline = "bad", fmt.Sprintf("%d differences in %d keys", r.Differences, r.Keys)
	case r.Unverified > 0:
		view.Tone, view.Headline = "wait", fmt.Sprintf("Not all is proved: %d unverified", r.Unverified)
	default:
		view.Tone, view.Headline = "good", "All agree"
	}
	if r.InFlight > 0 {
		view.Headline += fmt.Sprintf("; %d in flight", r.InFlight)
	}
	sections := r.sections()
	for _, class := range Classes {
		c := classView{Class: class, Tone: tone(class), Meaning: meanings[class], Anchor: anchor + "-" + strings.ToLower(string(class))}
		if i := slices.IndexFunc(sections, func(s section) bool { return s.Class == class }); i >= 0 {
			c.fill(&sections[i], r)
		}
		view.Classes = append(view.Classes, c)
	}
	return view
}

func (c *classView) fill(s *section, r *Report) {
	c.Count, c.Headline, c.More = s.Count, s.headline(), s.more()
	if s.Oldest != nil {
		c.Oldest = roughly(r.StartedAt.Sub(*s.Oldest)) + " ago, " + moment(*s.Oldest)
	}
	for _, w := range s.ways() {
		c.Ways = append(c.Ways, wayView{w.why, w.next})
	}
	const open = 3 // the others are one click away
	for i := range s.shown() {
		c.Findings = append(c.Findings, viewFinding(&s.Findings[i], r, i < open && s.Class.Difference()))
	}
}

func tone(class Class) string {
	if class.Difference() {
		return "bad"
	}
	return "wait"
}

func viewFinding(f *Finding, r *Report, open bool) findingView {
	view := findingView{Key: oneLine(f.Key), Detail: oneLine(f.Detail), Why: f.Why, Next: f.Next, Open: open}
	for _, cause := range f.Causes {
		view.Causes = append(view.Causes, Cause{cause.Code, oneLine(cause.Text)})
	}
	if f.Since != nil {
		view.Age = roughly(r.StartedAt.Sub(*f.Since)) + " ago"
		view.Since = moment(*f.Since)
	}
	if f.FirstSeen != nil {
		view.FirstSeen = moment(*f.FirstSeen)
	}
	if f.command != "" {
		view.Commands = []string{"waybill reconcile explain " + f.command}
	}
	if f.Row != nil || f.Event != nil || f.ReadModel != nil {
		view.Arms, view.Lines = compareArms(f, r)
	}
	return view
}

// compareArms puts beside each other what the arms say. The latest sent event
// has a column of its own where another follows it.
func compareArms(f *Finding, r *Report) (arms []string, lines []valueLine) {
	type arm struct {
		version, id, state, at string
		values                 map[string]Value
		there                  bool
	}
	ofRow := func(row *RowSample) arm {
		if row == nil {
			return arm{}
		}
		a := arm{there: true, version: fmt.Sprint(row.Version), id: row.EventID, values: row.Values}
		if row.UpdatedAt != nil {
			a.at = moment(*row.UpdatedAt)
		}
		return a
	}
	ofEvent := func(e *EventSample) arm {
		if e == nil {
			return arm{}
		}
		a := arm{there: true, version: fmt.Sprint(e.Version), id: e.ID, state: string(e.State), values: e.Values}
		if e.CreatedAt != nil {
			a.at = moment(*e.CreatedAt)
		}
		return a
	}
	var all []arm
	put := func(name string, a arm) { arms, all = append(arms, name), append(all, a) }
	if r.hasWrite {
		put("business row", ofRow(f.Row))
	}
	if r.hasLog {
		put("latest event", ofEvent(f.Event))
	}
	if f.SentEvent != nil {
		put("latest sent event", ofEvent(f.SentEvent))
	}
	if r.hasRead {
		put("read model", ofRow(f.ReadModel))
	}
	line := func(name string, cell func(arm) string, differs bool) {
		cells, some := make([]string, len(all)), false
		for i, a := range all {
			if a.there {
				cells[i] = oneLine(cell(a))
			}
			some = some || cells[i] != ""
		}
		if some {
			lines = append(lines, valueLine{name, cells, differs})
		}
	}
	seen, absent, versions := "", false, false
	for _, a := range all {
		absent = absent || !a.there
		versions = versions || a.there && seen != "" && a.version != seen
		if a.there {
			seen = a.version
		}
	}
	if absent {
		line("is there", func(arm) string { return "yes" }, true)
		for i, a := range all {
			if !a.there {
				lines[0].Cells[i] = "no"
			}
		}
	}
	line("version", func(a arm) string { return a.version }, versions)
	different := make(map[string]bool)
	names := make(map[string]bool)
	for _, d := range f.Differences {
		different[d.Column] = true
	}
	for _, a := range all {
		for name := range a.values {
			names[name] = true
		}
	}
	for _, name := range sortedNames(names) {
		line(name, func(a arm) string {
			if value, ok := a.values[name]; ok {
				return value.String()
			}
			return ""
		}, different[name])
	}
	line("state", func(a arm) string { return a.state }, false)
	line("event", func(a arm) string { return a.id }, false)
	line("time", func(a arm) string { return a.at }, false)
	return arms, lines
}

func sortedNames(names map[string]bool) []string {
	sorted := make([]string, 0, len(names))
	for name := range names {
		sorted = append(sorted, name)
	}
	slices.Sort(sorted)
	return sorted
}

type trendView struct {
	Width   int
	Bars    []bar
	Columns []Class
	Lines   []trendLine
}

type bar struct {
	Tone, Label, Day     string
	X, Y, Height         int
	Middle, Above, Total int
}

type trendLine struct {
	Date   string
	Counts []int
}

// viewTrend draws the differences of each day; nil where there is no past.
func viewTrend(days []Day) *trendView {
	if len(days) < 2 {
		return nil
	}
	view := &trendView{Width: 40 * len(days), Columns: Classes}
	most := 1
	for _, day := range days {
		most = max(most, day.differences())
	}
	for i, day := range days {
		total := day.differences()
		height := total * 52 / most
		if total > 0 {
			height = max(height, 2)
		}
		b := bar{Tone: "bad", X: 40*i + 6, Y: 70 - height, Height: height, Middle: 40*i + 20, Above: 66 - height, Total: total, Day: day.Date}
		if len(day.Date) > 5 {
			b.Day = day.Date[5:]
		}
		b.Label = fmt.Sprintf("%s: %d differences", day.Date, total)
		view.Bars = append(view.Bars, b)
		line := trendLine{Date: day.Date}
		for _, class := range Classes {
			line.Counts = append(line.Counts, day.Counts[class])
		}
		view.Lines = append(view.Lines, line)
	}
	return view
}

func (d Day) differences() (n int) {
	for class, count := range d.Counts {
		if class.Difference() {
			n += count
		}
	}
	return n
}
