package verdict

import (
	"cmp"
	"fmt"
	"slices"
)

// Finding is a broken promise.
type Finding struct {
	Promise string // "P1" to "P13"
	Text    string
}

func (f Finding) String() string { return f.Promise + ": " + f.Text }

// Check returns every promise that was broken, none if all were kept.
//
//	P1  every committed change of an account has exactly its event, no other
//	P2  every event is sent and applied, or visibly dead or behind what is dead
//	P3  each event has its effect once per group
//	P4  the first records and the effects of a key come in order
//	P5  nothing is published before its transaction is visible
//	P6  who does not own a lane changes none of its rows
//	P7  what is refused delays its own key alone, and an outage spends no attempts
//	P10 after the last fault all comes to rest by itself, which is P11 too, since
//	    nobody did anything but start again what was killed
//	P13 no transaction of the application is failed by others than the chaos
func (s *Seen) Check() []Finding {
	c := newCheck(s)
	c.produced()
	c.settled()
	c.published()
	c.consumed()
	c.effects()
	c.models()
	c.held()
	c.owned()
	c.application()
	if s.Stuck != "" {
		c.broken("P10", "not at rest after the last fault: %s", s.Stuck)
	}
	slices.SortStableFunc(c.found, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(len(a.Promise), len(b.Promise)), cmp.Compare(a.Promise, b.Promise))
	})
	return c.found
}

// check is a judgement on its way.
type check struct {
	*Seen
	found []Finding

	fact    map[string]*Fact   // by event id
	row     map[int64]*Fact    // by row
	byKey   map[string][]*Fact // in the order of versions
	sent    map[string]bool    // event ids with a receipt
	refused map[string]int64   // by key: the version that the broker refuses
	poison  map[string]int64   // by key: the version that consumers refuse
}

func newCheck(s *Seen) *check {
	c := &check{
		Seen: s, fact: make(map[string]*Fact), row: make(map[int64]*Fact), byKey: make(map[string][]*Fact),
		sent: make(map[string]bool), refused: make(map[string]int64), poison: make(map[string]int64),
	}
	for i := range s.Facts {
		f := &s.Facts[i]
		c.fact[f.ID], c.row[f.Row] = f, f
		c.byKey[f.Key] = append(c.byKey[f.Key], f)
	}
	for key, facts := range c.byKey {
		slices.SortFunc(facts, func(a, b *Fact) int { return cmp.Compare(a.Version, b.Version) })
		for _, f := range facts {
			if _, known := c.refused[key]; f.Type == TooLarge && !known {
				c.refused[key] = f.Version
			}
			if _, known := c.poison[key]; f.Type == Poison && !known {
				c.poison[key] = f.Version
			}
		}
	}
	for _, r := range s.Receipts {
		c.sent[r.EventID] = true
	}
	return c
}

func (c *check) broken(promise, format string, args ...any) {
	c.found = append(c.found, Finding{promise, fmt.Sprintf(format, args...)})
}

// behind reports whether an event is the one that the map names for its key, or
// waits behind it.
func behind(versions map[string]int64, key string, version int64) bool {
	first, ok := versions[key]
	return ok && version >= first
}

// produced compares the history with the accounts and the facts.
func (c *check) produced() {
	intents := make(map[string]Intent)
	ends := make(map[string]State)
	var transactions []Entry
	for _, e := range c.History {
		switch e.State {
		case Committing, Leaving:
			transactions = append(transactions, e)
			for _, intent := range e.Events {
				intents[intent.ID] = intent
			}
		default:
			ends[e.Tx] = e.State
		}
	}
	for _, t := range transactions {
		there := 0
		for _, intent := range t.Events {
			if f := c.fact[intent.ID]; f != nil {
				there++
				if f.Intent != intent {
					c.broken("P1", "event %s is %+v, appended was %+v", f.ID, f.Intent, intent)
				}
			}
		}
		end := ends[t.Tx]
		switch {
		case t.State == Committing && end == OK && there < len(t.Events):
			c.broken("P1", "transaction %s was committed, but %d of its %d events are lost", t.Tx, len(t.Events)-there, len(t.Events))
		case (t.State == Leaving || end == Failed) && there > 0:
			c.broken("P1", "transaction %s was not committed, but %d of its events exist", t.Tx, there)
		case there > 0 && there < len(t.Events):
			c.broken("P1", "half of transaction %s exists: %d of %d events", t.Tx, there, len(t.Events))
		}
	}
	for i := range c.Facts {
		if f := &c.Facts[i]; intents[f.ID].ID == "" {
			c.broken("P1", "event %s of %s was never appended", f.ID, f.Key)
		}
	}
	for key, facts := range c.byKey {
		var amount int64
		for i, f := range facts {
			if f.Version != int64(i+1) {
				c.broken("P1", "events of %s: version %d where %d is due", key, f.Version, i+1)
				break
			}
			amount += f.Amount
		}
		account, ok := c.Accounts[key]
		if want := (Account{int64(len(facts)), amount}); !ok || account != want {
			c.broken("P1", "account %s is %+v, its %d events make %+v", key, account, len(facts), want)
		}
	}
	for key, account := range c.Accounts {
		if account.Version > 0 && c.byKey[key] == nil {
			c.broken("P1", "account %s has version %d and no event", key, account.Version)
		}
	}
}

// settled compares facts, queue and receipts.
func (c *check) settled() {
	queued, receipts := make(map[int64]*Queued), make(map[int64]*Receipt)
	for i := range c.Queue {
		q := &c.Queue[i]
		queued[q.Row] = q
		f := c.row[q.Row]
		switch {
		case f == nil:
			c.broken("P2", "row %d of the queue has no event", q.Row)
		case q.Status == "DEAD" && f.Type != TooLarge:
			c.broken("P7", "event %s is dead, though nothing is wrong with it: %s", f.ID, q.LastErr)
		case q.Status != "DEAD" && f.Type == TooLarge && f.Version == c.refused[f.Key]:
			c.broken("P2", "event %s is too large, but %s", f.ID, q.Status)
		case q.Status == "DEAD" && q.LastErr == "":
			c.broken("P2", "event %s is dead without a cause", f.ID)
		case !behind(c.refused, f.Key, f.Version) && c.Stuck == "":
			c.broken("P7", "event %s of %s is not settled, and behind nothing that is dead", f.ID, f.Key)
		}
	}
	for i := range c.Receipts {
		r := &c.Receipts[i]
		receipts[r.Row] = r
		if f := c.row[r.Row]; f == nil || f.ID != r.EventID {
			c.broken("P2", "the receipt of row %d names event %s, which is not there", r.Row, r.EventID)
		}
		if r.Outcome != "SENT" {
			c.broken("P2", "event %s is %s, and nobody asked for that", r.EventID, r.Outcome)
		}
	}
	for i := range c.Facts {
		f := &c.Facts[i]
		q, r := queued[f.Row], receipts[f.Row]
		if q == nil && r == nil {
			c.broken("P2", "event %s is neither queued nor settled: settled without a receipt", f.ID)
		}
		if q != nil && r != nil {
			c.broken("P2", "event %s is both queued and settled", f.ID)
		}
	}
}

// published compares facts and receipts with the topic.
func (c *check) published() {
	records := make(map[string]bool)
	places := make(map[string]string) // place to event id
	partition := make(map[string]int32)
	last := make(map[string]int64)
	begun := c.begun()
	for i := range c.Records {
		r := &c.Records[i]
		places[fmt.Sprintf("%s[%d]@%d", r.Topic, r.Partition, r.Offset)] = r.ID
		f := c.fact[r.ID]
		if f == nil {
			c.broken("P1", "record %s of %s is of no event that was committed", r.ID, r.Key)
			continue
		}
		if f.Intent != r.Intent || r.Key != f.Key {
			c.broken("P2", "record of %s is %+v with key %q, the event is %+v", f.ID, r.Intent, r.Key, f.Intent)
		}
		if first, known := partition[r.Key]; known && first != r.Partition {
			c.broken("P4", "key %s is in partitions %d and %d", r.Key, first, r.Partition)
		}
		partition[r.Key] = r.Partition
		if at, known := begun[r.ID]; known && r.At.UnixMilli() < at/1000 {
			c.broken("P5", "event %s was published %d ms before its COMMIT was sent", r.ID, at/1000-r.At.UnixMilli())
		}
		if records[r.ID] {
			continue
		}
		records[r.ID] = true
		if f.Version != last[r.Key]+1 {
			c.broken("P4", "key %s: version %d is published first after version %d", r.Key, f.Version, last[r.Key])
		}
		last[r.Key] = max(last[r.Key], f.Version)
	}
	for i := range c.Receipts {
		r := &c.Receipts[i]
		if !records[r.EventID] {
			c.broken("P2", "event %s has a receipt, but is not in the topic", r.EventID)
		} else if r.Place != "" && places[r.Place] != r.EventID {
			c.broken("P2", "the receipt of %s says %s, where %q is", r.EventID, r.Place, places[r.Place])
		}
	}
	for i := range c.Queue {
		if f := c.row[c.Queue[i].Row]; f != nil && records[f.ID] && behind(c.refused, f.Key, f.Version) {
			c.broken("P4", "event %s of %s is published, though it is behind what is dead", f.ID, f.Key)
		}
	}
}

// begun is when the COMMIT of each event was about to be sent, in microseconds.
func (c *check) begun() map[string]int64 {
	at := make(map[string]int64)
	for _, e := range c.History {
		if e.State == Committing {
			for _, intent := range e.Events {
				at[intent.ID] = e.At
			}
		}
	}
	return at
}

// owned checks who wrote to the queue.
func (c *check) owned() {
	for _, w := range c.Writes {
		who, known := c.Owners[w.Owner]
		switch {
		case !known:
			c.broken("P6", "%s wrote to row %d, whose lane was owned by %q, which is no relay", w.Who, w.Row, w.Owner)
		case who != w.Who:
			c.broken("P6", "%s wrote to row %d, whose lane was owned by %s", w.Who, w.Row, who)
		}
		if f := c.row[w.Row]; w.Retries > 0 && !w.Gone && (f == nil || f.Type != TooLarge) {
			c.broken("P7", "an attempt of row %d was spent, though nothing is wrong with it: %s", w.Row, w.LastErr)
		}
	}
}
