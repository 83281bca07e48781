package verdict

import "strings"

// consumed compares what was sent with what each group has settled.
func (c *check) consumed() {
	settled := make(map[string]map[string]bool) // by group
	for _, group := range c.Groups {
		settled[group] = make(map[string]bool)
	}
	for _, s := range c.Consumed {
		if settled[s.Group] == nil {
			continue
		}
		settled[s.Group][s.EventID] = true
		f := c.fact[s.EventID]
		switch {
		case f == nil:
			c.broken("P1", "group %s has consumed %s, which was never committed", s.Group, s.EventID)
		case s.Outcome != "APPLIED":
			c.broken("P2", "group %s: event %s is %s, and nobody asked for that", s.Group, s.EventID, s.Outcome)
		case behind(c.poison, f.Key, f.Version):
			c.broken("P4", "group %s has consumed %s, though it is behind what is dead", s.Group, s.EventID)
		}
	}
	kept := make(map[string]map[string]bool)
	for _, h := range c.Held {
		if kept[h.Group] == nil {
			kept[h.Group] = make(map[string]bool)
		}
		kept[h.Group][h.EventID] = true
	}
	for _, group := range c.Groups {
		for i := range c.Facts {
			f := &c.Facts[i]
			if !c.sent[f.ID] {
				continue
			}
			isSettled, isKept := settled[group][f.ID], kept[group][f.ID]
			if !isSettled && !isKept {
				c.broken("P2", "group %s has neither consumed nor kept %s of %s", group, f.ID, f.Key)
			}
			if isSettled && isKept {
				c.broken("P2", "group %s has both consumed and kept %s of %s", group, f.ID, f.Key)
			}
		}
	}
}

// effects checks that there is one effect for each consumed event, in the order
// of its key.
func (c *check) effects() {
	type pair struct{ group, id string }
	count := make(map[pair]int)
	last := make(map[pair]int64) // by group and key
	for _, e := range c.Effects {
		one := pair{e.Group, e.EventID}
		if count[one]++; count[one] > 1 {
			c.broken("P3", "group %s: event %s had its effect %d times", e.Group, e.EventID, count[one])
			continue
		}
		key := pair{e.Group, e.Key}
		if e.Version != last[key]+1 {
			c.broken("P4", "group %s, key %s: the effect of version %d comes after that of version %d", e.Group, e.Key, e.Version, last[key])
		}
		last[key] = max(last[key], e.Version)
		if f := c.fact[e.EventID]; f == nil {
			c.broken("P1", "group %s: an effect of %s, which was never committed", e.Group, e.EventID)
		}
	}
	for _, s := range c.Consumed {
		if s.Outcome == "APPLIED" && count[pair{s.Group, s.EventID}] == 0 {
			c.broken("P3", "group %s: event %s is consumed, but had no effect", s.Group, s.EventID)
		}
		delete(count, pair{s.Group, s.EventID})
	}
	for one := range count {
		c.broken("P3", "group %s: event %s had an effect, but is not consumed", one.group, one.id)
	}
}

// models compares what handlers have added up with the events that they had.
func (c *check) models() {
	type pair struct{ group, key string }
	want := make(map[pair]Model)
	for _, s := range c.Consumed {
		f := c.fact[s.EventID]
		if f == nil || s.Outcome != "APPLIED" {
			continue
		}
		m := want[pair{s.Group, f.Key}]
		m.Group, m.Key, m.Version = s.Group, f.Key, max(m.Version, f.Version)
		m.Events++
		m.Total += f.Amount
		want[pair{s.Group, f.Key}] = m
	}
	for _, m := range c.Models {
		wanted := want[pair{m.Group, m.Key}]
		wanted.Group, wanted.Key = m.Group, m.Key
		if m != wanted {
			c.broken("P3", "the model is %+v, the events make %+v", m, wanted)
		}
		delete(want, pair{m.Group, m.Key})
	}
	for _, m := range want {
		if m.Events > 0 {
			c.broken("P3", "the model lacks %+v", m)
		}
	}
}

// held checks that only what is poison is dead, and that only what comes after
// it in its key waits.
func (c *check) held() {
	for _, h := range c.Held {
		f := c.fact[h.EventID]
		switch {
		case f == nil:
			c.broken("P1", "group %s keeps %s, which was never committed", h.Group, h.EventID)
		case h.State == "DEAD" && f.Type != Poison:
			c.broken("P7", "group %s: event %s is dead, though nothing is wrong with it: %s", h.Group, h.EventID, h.FirstErr)
		case h.State == "DEAD" && !strings.Contains(h.FirstErr, PoisonError(h.EventID)):
			c.broken("P2", "group %s: event %s is dead by %q", h.Group, h.EventID, h.FirstErr)
		case h.State == "DEAD":
		case !behind(c.poison, f.Key, f.Version):
			c.broken("P7", "group %s: event %s of %s is %s, and behind nothing that is dead", h.Group, h.EventID, f.Key, h.State)
		case f.Version == c.poison[f.Key] && c.Stuck == "":
			c.broken("P2", "group %s: the poison %s is %s, not dead", h.Group, h.EventID, h.State)
		}
	}
}

// PoisonError is what a handler says to a poison event.
func PoisonError(id string) string { return "poison in " + id }
