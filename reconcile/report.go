package reconcile

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Report is the outcome of a run. Its JSON is stable: fields may be added.
type Report struct {
	Check       string        `json:"check"`          // its name
	RunID       string        `json:"run,omitempty"`  // where results are kept
	Mode        Mode          `json:"mode,omitempty"` // which keys were compared; empty: all
	StartedAt   time.Time     `json:"started_at"`
	FinishedAt  time.Time     `json:"finished_at"`
	Differences int           `json:"differences"`       // findings that are neither IN_FLIGHT nor UNVERIFIED
	Ignored     int           `json:"ignored,omitempty"` // of the differences: somebody has decided about them
	InFlight    int           `json:"in_flight"`         // listed, but no difference
	Unverified  int           `json:"unverified"`        // keys, or ranges of keys, of which nothing is proved
	Counts      map[Class]int `json:"counts"`            // by class, each of them
	// Oldest is the earliest Since of each class that has one, also of findings
	// that are not listed.
	Oldest      map[Class]time.Time `json:"oldest,omitempty"`
	Findings    []Finding           `json:"findings"`          // by class, then key
	LeftOut     int                 `json:"findings_left_out"` // counted, but not listed
	Healed      int                 `json:"healed"`            // seen, and gone when looked at again
	Unconfirmed int                 `json:"unconfirmed"`       // too many to look at again
	Keys        int64               `json:"keys"`              // different ones over all arms
	Rows        RowCounts           `json:"rows"`              // read, by arm
	Coverage    Coverage            `json:"coverage"`          // how much of the keys was compared
	Normalised  []Normalised        `json:"normalised"`        // what was equal only by value
	Blind       []string            `json:"blind,omitempty"`   // what the check cannot see
	Split       bool                `json:"split,omitempty"`   // row and log were not read in one snapshot
	// Trend has what runs of earlier days and this one have found, where they are
	// kept, oldest day first.
	Trend []Day `json:"trend,omitempty"`

	// Unindexed are the arms that were read as a whole for want of an index, and
	// which index would help.
	Unindexed []string `json:"unindexed,omitempty"`

	hasWrite, hasLog, hasRead bool
}

// Day is what the last complete run of a day has found.
type Day struct {
	Date   string        `json:"date"`   // in UTC, as 2026-03-01
	Counts map[Class]int `json:"counts"` // by class
}

// RowCounts counts rows by arm.
type RowCounts struct {
	Write int64 `json:"write"`
	Log   int64 `json:"log"`
	Read  int64 `json:"read"`
}

// Coverage says how much of the keys was compared.
type Coverage struct {
	Complete bool          `json:"complete"`
	Ranges   int           `json:"ranges"`
	Failed   []FailedRange `json:"failed"`
}

// FailedRange is a range, or one key, that could not be read.
type FailedRange struct {
	Range string `json:"range"`
	Error string `json:"error"`
}

// Normalised counts equal values that did not look the same.
type Normalised struct {
	Column string `json:"column"`
	How    string `json:"how"`
	Count  int    `json:"count"`
}

type note struct{ column, how string }

// Finding is a verdict as a report shows it.
type Finding struct {
	ID          string       `json:"id,omitempty"` // where findings are kept
	Class       Class        `json:"class"`
	Key         string       `json:"key"`                   // its parts joined by a slash; of what could not be read a range
	Side        Side         `json:"side,omitempty"`        // write or read
	Detail      string       `json:"detail"`                // the texts of the causes
	Since       *time.Time   `json:"since,omitempty"`       // not before then, by what the arms say
	FirstSeen   *time.Time   `json:"first_seen,omitempty"`  // by an earlier run, where they are kept
	Why         string       `json:"why"`                   // the rule by which it was judged
	Causes      []Cause      `json:"causes"`                // the first decided
	Missing     int64        `json:"missing,omitempty"`     // of MISSING_EVENT: how many events
	Differences []Difference `json:"differences,omitempty"` // of content, by column
	Row         *RowSample   `json:"row,omitempty"`
	Event       *EventSample `json:"event,omitempty"`      // the latest
	SentEvent   *EventSample `json:"sent_event,omitempty"` // the latest that was sent, if that is another
	ReadModel   *RowSample   `json:"read_model,omitempty"`
	Next        string       `json:"next"` // what to do about it

	// Unconfirmed says that there was no time to look again: too many differ.
	Unconfirmed bool `json:"unconfirmed,omitempty"`

	order   string // sorts as the key does
	command string // the key as a shell takes it
}

// RowSample is a row as a report shows it.
type RowSample struct {
	Version   int64            `json:"version"`
	EventID   string           `json:"event_id,omitempty"`
	UpdatedAt *time.Time       `json:"updated_at,omitempty"`
	Values    map[string]Value `json:"values,omitempty"`
}

// EventSample is an event as a report shows it.
type EventSample struct {
	ID        string           `json:"event_id"`
	Version   int64            `json:"version"`
	State     State            `json:"state"`
	CreatedAt *time.Time       `json:"created_at,omitempty"`
	Values    map[string]Value `json:"values,omitempty"`
}

// Recall adds to the findings what is on record of them: their ids, and when
// they were first seen.
func (r *Report) Recall(records []FindingRecord) {
	type name struct {
		class Class
		side  Side
		key   string
	}
	known := make(map[name]*FindingRecord, len(records))
	for i := range records {
		known[name{records[i].Class, records[i].Side, records[i].Key}] = &records[i]
	}
	for i := range r.Findings {
		f := &r.Findings[i]
		if record := known[name{f.Class, f.Side, f.Key}]; record != nil {
			f.ID, f.FirstSeen = record.ID, &record.FirstSeen
		}
	}
}

func (e *Engine) newReport() *Report {
	r := &Report{Check: e.check.Name, StartedAt: e.clock.Now(), Findings: []Finding{}, Counts: make(map[Class]int), Blind: e.check.blind(), Normalised: []Normalised{}}
	r.Coverage.Failed = []FailedRange{}
	r.hasWrite, r.hasLog, r.hasRead = e.check.Write != nil, e.check.Log != nil, e.check.Read != nil
	r.Split = e.check.Split && e.check.Write != nil && e.check.Log != nil && e.check.Write.Database != e.check.Log.Database
	for _, class := range Classes {
		r.Counts[class] = 0
	}
	return r
}

// add lists and counts a candidate's verdicts.
func (r *Report) add(c *candidate, check *Check) {
	for _, v := range []*Verdict{c.write, c.read} {
		if v == nil {
			continue
		}
		r.count(v.Class)
		r.age(v.Class, v.Since)
		if len(r.Findings) >= check.MaxFindings {
			r.LeftOut++
			continue
		}
		found := newFinding(&c.facts, v, check)
		found.Unconfirmed = c.unconfirmed
		r.Findings = append(r.Findings, found)
	}
}

// age keeps the earliest time of a class.
func (r *Report) age(class Class, since time.Time) {
	if oldest, known := r.Oldest[class]; !since.IsZero() && (!known || since.Before(oldest)) {
		if r.Oldest == nil {
			r.Oldest = make(map[Class]time.Time)
		}
		r.Oldest[class] = since
	}
}

func (r *Report) count(class Class) {
	r.Counts[class]++
	switch class {
	case InFlight:
		r.InFlight++
	case Unverified:
		r.Unverified++
	default:
		r.Differences++
	}
}

// fail records a range that could not be read.
func (r *Report) fail(whole Range, err error) {
	name := whole.String()
	r.Coverage.Failed = append(r.Coverage.Failed, FailedRange{Range: name, Error: err.Error()})
	r.count(Unverified)
	r.Findings = append(r.Findings, Finding{
		Class: Unverified, Key: name, Detail: err.Error(), Causes: []Cause{{NotRead, err.Error()}}, Why: reason(Unverified, NotRead, nil), Next: nextStep(Unverified, NotRead),
	})
}

func newFinding(f *Facts, v *Verdict, check *Check) Finding {
	texts := make([]string, len(v.Causes))
	for i, cause := range v.Causes {
		texts[i] = cause.Text
	}
	found := Finding{
		Class: v.Class, Key: f.Key.String(), order: f.Key.order, command: forKey("KEY", f.Key), Side: v.Side, Detail: strings.Join(texts, "; "),
		Since: viewTime(v.Since), Causes: v.Causes, Missing: v.Missing, Differences: v.Differences,
		Row: viewRow(f.Write, check), ReadModel: viewRow(f.Read, check), Event: viewEvent(last(f.Log, every), check),
	}
	if sent := last(f.Log, isSent); sent != last(f.Log, every) {
		found.SentEvent = viewEvent(sent, check)
	}
	if len(v.Causes) > 0 {
		code := v.Causes[0].Code
		found.Why, found.Next = reason(v.Class, code, check), forKey(nextStep(v.Class, code), f.Key)
	}
	return found
}

func viewRow(row *Row, check *Check) *RowSample {
	if row == nil {
		return nil
	}
	return &RowSample{Version: row.Version, EventID: row.EventID, UpdatedAt: viewTime(row.UpdatedAt), Values: viewValues(row.Values, check)}
}

func viewEvent(e *Event, check *Check) *EventSample {
	if e == nil {
		return nil
	}
	return &EventSample{ID: e.ID, Version: e.Version, State: e.State, CreatedAt: viewTime(e.CreatedAt), Values: viewValues(e.Values, check)}
}

func viewTime(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	return &at
}

func viewValues(values []Value, check *Check) map[string]Value {
	view := make(map[string]Value, len(values))
	for i, value := range values {
		view[check.Compare[i].Name] = value
	}
	return view
}

// observe notes which values were equal only after they were normalised.
func (r *run) observe(f *Facts) {
	if r.rules.Delta {
		return
	}
	var e *Event
	if f.Write != nil {
		e = last(f.Log, func(e *Event) bool { return e.Version == f.Write.Version && e.Values != nil && !e.Delete })
	}
	sent := last(f.Log, func(e *Event) bool {
		return f.Read != nil && e.Version == f.Read.Version && e.Values != nil && !e.Delete
	})
	for i, c := range r.rules.Columns {
		if e != nil && c.Write && c.Log {
			r.note(c.Name, f.Write.Values[i], e.Values[i])
		}
		if sent != nil && c.Log && c.Read {
			r.note(c.Name, sent.Values[i], f.Read.Values[i])
		}
	}
}

func (r *run) note(name string, a, b Value) {
	if equal, how := Equal(a, b); equal && how != "" {
		r.notes[note{name, how}]++
	}
}

// sort puts the findings in order.
func (r *Report) sort() {
	slices.SortStableFunc(r.Findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(slices.Index(Classes, a.Class), slices.Index(Classes, b.Class)), cmp.Compare(a.order, b.order))
	})
}

func (r *run) finish() *Report {
	report := r.report
	report.sort()
	for n, count := range r.notes {
		report.Normalised = append(report.Normalised, Normalised{n.column, n.how, count})
	}
	slices.SortFunc(report.Normalised, func(a, b Normalised) int {
		return cmp.Or(cmp.Compare(a.Column, b.Column), cmp.Compare(a.How, b.How))
	})
	report.Coverage.Complete = len(report.Coverage.Failed) == 0
	report.FinishedAt = r.clock.Now()
	return report
}
