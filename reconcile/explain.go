package reconcile

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Story is all that the three arms say of one key.
type Story struct {
	Check     string              `json:"check"`
	Key       string              `json:"key"`
	Row       *RowSample          `json:"row"`
	Events    []EventSample       `json:"events"`
	ReadModel *RowSample          `json:"read_model"`
	Consumer  map[string]FateView `json:"consumer,omitempty"` // by event id
	Timeline  []Moment            `json:"timeline"`           // all of it in order of time
	Findings  []Finding           `json:"findings"`
	columns   []string
}

// FateView is what the consumer says of an event.
type FateView struct {
	Fate  Fate   `json:"fate"`
	Error string `json:"error,omitempty"`
}

// Moment is one thing that one of the arms tells of a key.
type Moment struct {
	At      *time.Time `json:"at"`  // null: not known; it then stands where it belongs by version
	Arm     string     `json:"arm"` // row, log, outbox, consumer, read model, or unknown
	EventID string     `json:"event_id,omitempty"`
	Version int64      `json:"version,omitempty"`
	Text    string     `json:"text"`

	order time.Time // by which it is sorted
	rank  int
}

// Explain reads one key, given by the texts of its parts, and judges it as it
// stands; nothing is read again later.
func (e *Engine) Explain(ctx context.Context, key []string) (*Story, error) {
	k, err := ParseKey(e.check.kinds(), key)
	if err != nil {
		return nil, err
	}
	r, err := e.newRun(ctx)
	if err != nil {
		return nil, err
	}
	found, _, err := r.gather(ctx, Range{only: &k})
	if err != nil {
		return nil, err
	}
	story := &Story{Check: e.check.Name, Key: k.String(), Events: []EventSample{}, Timeline: []Moment{}, Findings: []Finding{}}
	for i := range e.check.Compare {
		story.columns = append(story.columns, e.check.Compare[i].Name)
	}
	if len(found) == 0 {
		return story, nil
	}
	f := &found[0]
	r.now()
	c := candidate{facts: *f}
	c.write, c.read = Judge(f, &r.rules)
	r.report.add(&c, e.check)
	story.Findings = r.report.Findings
	story.Row, story.ReadModel = viewRow(f.Write, e.check), viewRow(f.Read, e.check)
	for i := range f.Log {
		story.Events = append(story.Events, *viewEvent(&f.Log[i], e.check))
	}
	if err := story.ask(ctx, e, f); err != nil {
		return nil, err
	}
	return story, nil
}

// shownEvents is how many events of a key are told of in full, the latest.
const shownEvents = 20

// ask adds what the outbox and the consumer know of the latest events, and puts
// all in order.
func (s *Story) ask(ctx context.Context, e *Engine, f *Facts) error {
	events := s.Events[max(0, len(s.Events)-shownEvents):]
	var ids []string
	for i := range events {
		ids = append(ids, events[i].ID)
	}
	known, err := e.arms.consumed(ctx, ids)
	if err != nil {
		return err
	}
	for id, fate := range known {
		if s.Consumer == nil {
			s.Consumer = make(map[string]FateView)
		}
		s.Consumer[id] = FateView{fate.Fate, fate.Error}
	}
	var entries []entry
	if e.bases != nil {
		entries = e.bases.entries(ctx, ids)
	}
	s.tell(events, f.Log[len(f.Log)-len(events):], entries)
	return nil
}

// tell makes the timeline. Of what happened at one time the cause comes first.
func (s *Story) tell(events []EventSample, log []Event, entries []entry) {
	const (
		rankRow = iota
		rankEvent
		rankSent
		rankConsumer
		rankRead
	)
	add := func(m Moment, at time.Time, rank int) {
		if !at.IsZero() {
			m.At, m.order = &at, at
		}
		m.rank = rank
		s.Timeline = append(s.Timeline, m)
	}
	receipts, fates := make(map[string]bool), make(map[string]bool)
	for _, x := range entries {
		receipts[x.eventID] = receipts[x.eventID] || x.arm == "outbox"
		fates[x.eventID] = fates[x.eventID] || x.arm == "consumer"
	}
	var last time.Time // an event without a time comes after the one before it
	for i := range events {
		e, raw := &events[i], &log[i]
		text := fmt.Sprintf("v%d %s %s%s", e.Version, e.State, e.ID, s.values(e.Values))
		if raw.Delete {
			text += "  (says that the row is gone)"
		}
		add(Moment{Arm: "log", EventID: e.ID, Version: e.Version, Text: text}, raw.CreatedAt, rankEvent)
		if raw.CreatedAt.IsZero() {
			s.Timeline[len(s.Timeline)-1].order = last
		} else {
			last = raw.CreatedAt
		}
		if !receipts[e.ID] && !raw.SentAt.IsZero() {
			add(Moment{Arm: "log", EventID: e.ID, Version: e.Version, Text: e.ID + " sent"}, raw.SentAt, rankSent)
		}
		if fate, known := s.Consumer[e.ID]; known && !fates[e.ID] {
			text := e.ID + " " + string(fate.Fate)
			if fate.Error != "" {
				text += ": " + fate.Error
			}
			add(Moment{Arm: "consumer", EventID: e.ID, Version: e.Version, Text: text}, time.Time{}, rankConsumer)
			s.Timeline[len(s.Timeline)-1].order = last
		}
	}
	for _, x := range entries {
		rank, text := rankSent, x.text
		if x.arm == "consumer" {
			rank = rankConsumer
		}
		if x.eventID != "" {
			text = x.eventID + " " + text
		}
		add(Moment{Arm: x.arm, EventID: x.eventID, Text: text}, x.at, rank)
	}
	for _, side := range []struct {
		arm  string
		row  *RowSample
		rank int
	}{{"row", s.Row, rankRow}, {"read model", s.ReadModel, rankRead}} {
		if side.row == nil {
			continue
		}
		var at time.Time
		if side.row.UpdatedAt != nil {
			at = *side.row.UpdatedAt
		}
		add(Moment{Arm: side.arm, EventID: side.row.EventID, Version: side.row.Version, Text: s.side(side.row)}, at, side.rank)
		if at.IsZero() { // it is as it is now
			s.Timeline[len(s.Timeline)-1].order = distant
		}
	}
	slices.SortStableFunc(s.Timeline, func(a, b Moment) int {
		return cmp.Or(a.order.Compare(b.order), cmp.Compare(a.rank, b.rank))
	})
}

// distant is after every time that a table may hold.
var distant = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)

// Text tells the story to people.
func (s *Story) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %s\n", oneLine(s.Check), oneLine(s.Key))
	var table grid
	if n := len(s.Events) - shownEvents; n > 0 {
		table.add("", "log", fmt.Sprintf("(%d earlier events)", n))
	}
	for i := range s.Timeline {
		m := &s.Timeline[i]
		at := "-"
		if m.At != nil {
			at = moment(*m.At)
		}
		table.add("  "+at, m.Arm, oneLine(m.Text))
	}
	if s.Row == nil {
		table.add("  now", "row", "none")
	}
	if len(s.Events) == 0 {
		table.add("  now", "log", "no event")
	}
	if s.ReadModel == nil {
		table.add("  now", "read model", "none")
	}
	table.write(&b)
	if len(s.Findings) == 0 {
		b.WriteString("  = nothing differs\n")
	}
	for i := range s.Findings {
		f := &s.Findings[i]
		fmt.Fprintf(&b, "  = %s side  %s: %s\n", f.Side, f.Class, oneLine(f.Detail))
		if f.Why != "" {
			fmt.Fprintf(&b, "    why  %s\n", f.Why)
		}
		if step := s.next(f); step != "" {
			fmt.Fprintf(&b, "    do   %s\n", step)
		}
	}
	return b.String()
}

// next is the finding's, less the advice to look at what is being looked at.
func (s *Story) next(f *Finding) string {
	if f.command == "" {
		return f.Next
	}
	return strings.TrimPrefix(f.Next, "see all three sides with waybill reconcile explain "+f.command+"; ")
}

func (s *Story) side(row *RowSample) string {
	text := fmt.Sprintf("v%d%s", row.Version, s.values(row.Values))
	if row.EventID != "" {
		text += "  from " + row.EventID
	}
	return text
}

func (s *Story) values(values map[string]Value) string {
	var b strings.Builder
	for _, name := range slices.Compact(slices.Clone(s.columns)) {
		if value, ok := values[name]; ok {
			fmt.Fprintf(&b, "  %s=%s", name, value)
		}
	}
	return b.String()
}
