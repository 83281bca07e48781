package reconcile

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// Story is all that the three arms say of one key.
type Story struct {
	Check     string              `json:"check"`
	Key       string              `json:"key"`
	Row       *RowSample          `json:"row"`
	Events    []EventSample       `json:"events"`
	ReadModel *RowSample          `json:"read_model"`
	Consumer  map[string]FateView `json:"consumer,omitempty"` // by event id
	Findings  []Finding           `json:"findings"`
	columns   []string
}

// FateView is what the consumer says of an event.
type FateView struct {
	Fate  Fate   `json:"fate"`
	Error string `json:"error,omitempty"`
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
	story := &Story{Check: e.check.Name, Key: k.String(), Events: []EventSample{}, Findings: []Finding{}}
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
	for id, known := range f.Consumer {
		if story.Consumer == nil {
			story.Consumer = make(map[string]FateView)
		}
		story.Consumer[id] = FateView{known.Fate, known.Error}
	}
	return story, nil
}

// Text tells the story to people.
func (s *Story) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %s\n", oneLine(s.Check), oneLine(s.Key))
	line := func(what, text string) { fmt.Fprintf(&b, "  %-12s %s\n", what, oneLine(text)) }
	if s.Row == nil {
		line("row", "none")
	} else {
		line("row", s.side(s.Row))
	}
	if len(s.Events) == 0 {
		line("log", "no event")
	}
	const shown = 20
	events := s.Events
	if n := len(events) - shown; n > 0 {
		line("log", fmt.Sprintf("(%d earlier events)", n))
		events = events[n:]
	}
	for i := range events {
		e := &events[i]
		text := fmt.Sprintf("v%d %s %s%s", e.Version, e.State, e.ID, s.values(e.Values))
		if e.CreatedAt != nil {
			text += "  created " + moment(*e.CreatedAt)
		}
		if known, ok := s.Consumer[e.ID]; ok {
			text += "  consumer: " + string(known.Fate)
			if known.Error != "" {
				text += " (" + known.Error + ")"
			}
		}
		line("log", text)
	}
	if s.ReadModel == nil {
		line("read model", "none")
	} else {
		line("read model", s.side(s.ReadModel))
	}
	if len(s.Findings) == 0 {
		line("=", "nothing differs")
	}
	for i := range s.Findings {
		f := &s.Findings[i]
		line("= "+string(f.Side)+" side", string(f.Class)+": "+f.Detail)
		line("!", f.Next)
	}
	return b.String()
}

func (s *Story) side(row *RowSample) string {
	text := fmt.Sprintf("v%d%s", row.Version, s.values(row.Values))
	if row.EventID != "" {
		text += "  from " + row.EventID
	}
	if row.UpdatedAt != nil {
		text += "  updated " + moment(*row.UpdatedAt)
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
