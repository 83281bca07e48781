package mysql

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	rough "math/rand/v2"
	"sync"
	"time"

	"github.com/waybillhq/waybill/store"
)

const frontierSQL = `
SELECT COALESCE((SELECT MAX(id) FROM {event}), 0), TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))`

// The same, and the transactions that have written something, by number. The
// server counts them up; 0, or a number of 2^48 or more, stands for one that only
// reads. The list is a copy that the server renews if nobody has read it for
// 100 ms, so the statement looks for itself in it, by a text of its own.
const runningSQL = `
SELECT COALESCE((SELECT MAX(id) FROM {event}), 0), TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)),
       COALESCE(MAX(t.thread = CONNECTION_ID() AND LOCATE(?, t.query) > 0), 0),
       COALESCE(MIN(CASE WHEN t.id BETWEEN 1 AND 281474976710655 THEN t.id END), 0),
       COALESCE(MAX(CASE WHEN t.id BETWEEN 1 AND 281474976710655 THEN t.id END), 0)
FROM (SELECT CAST(trx_id AS UNSIGNED) AS id, trx_mysql_thread_id AS thread, trx_query AS query
      FROM information_schema.INNODB_TRX) t`

// Frontier returns tokens that the store gives out; see frontier.
func (s *Store) Frontier(ctx context.Context) (store.Frontier, error) {
	var maxID, at int64
	look := s.frontier.begin(now())
	if look != nil {
		err := s.look(ctx, look, &maxID, &at)
		if code := codeOf(err); code == codeNoSpecialRight || code == codeNoRight {
			s.frontier.denied(now())
			look = nil
		} else if err != nil {
			return store.Frontier{}, failure("frontier", "", err)
		}
	}
	if look == nil {
		if _, err := s.pool().one(ctx, frontierSQL, nil, &maxID, &at); err != nil {
			return store.Frontier{}, failure("frontier", "", err)
		}
	}
	opened, closed := s.frontier.answer(now(), at, s.config.CommitWindow, look)
	return store.Frontier{MaxID: maxID, Opened: opened, Closed: closed}, nil
}

func (s *Store) look(ctx context.Context, look *look, maxID, at *int64) error {
	var fresh, lowest, highest number
	_, err := s.pool().one(ctx, runningSQL, []any{look.text}, maxID, at, &fresh, &lowest, &highest)
	look.fresh, look.lowest, look.highest = fresh.n == 1, lowest.n, highest.n
	return err
}

const (
	lookEvery = 200 * time.Millisecond
	lookAgain = time.Minute // where the list may not be read
	mostStale = 4           // doublings of lookEvery while others keep the list old

	blindAfter = 10 * time.Second // without a fresh list, the commit window counts

	// An INSERT takes its id a moment before its transaction gets a number. That
	// moment is given far more time than it needs. When one side stands still for a
	// while, no more than mostStep of that counts.
	settleTime = time.Second
	mostStep   = 250 * time.Millisecond

	mostMarks = 64
)

// frontier follows which transactions were running when an id was visible.
//
// Each answer has a token, and some are marked. Whoever took an id before a mark
// is in the list of those that run settleTime later, or has ended by then. The
// greatest number of that list is the mark's barrier: once nobody up to it is
// running, the mark's token is closed, and with it all before.
//
// Where the list cannot be read, or only old copies of it, what is as old as the
// commit window is taken for closed.
type frontier struct {
	mu      sync.Mutex
	token   uint64 // of the latest answer
	closed  uint64 // the greatest token that is closed
	marks   []mark // oldest first
	age     time.Duration
	moved   time.Time // when age was last moved on
	lookAt  time.Time
	looks   int
	stale   int       // looks in a row that found an old copy
	freshAt time.Time // when the list was last read, or first asked for
	refused bool      // it may not be read
	name    string    // no other store's
}

type mark struct {
	token   uint64
	age     time.Duration
	at      int64 // microseconds of the database's clock
	weighed bool  // barrier is known
	barrier int64
}

// look is one reading of the list.
type look struct {
	text            string
	age             time.Duration // when it began
	fresh           bool
	lowest, highest int64 // numbers of running transactions; 0 none
}

// begin returns the look that is due, or nil.
func (f *frontier) begin(at time.Time) *look {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.moveOn(at)
	if at.Before(f.lookAt) {
		return nil
	}
	f.name = cmp.Or(f.name, rand.Text())
	f.looks++
	f.lookAt = at.Add(lookEvery)
	return &look{text: fmt.Sprintf("%s-%d", f.name, f.looks), age: f.age}
}

func (f *frontier) moveOn(at time.Time) {
	if !f.moved.IsZero() {
		f.age += max(min(at.Sub(f.moved), mostStep), 0)
	}
	f.moved = at
}

func (f *frontier) denied(at time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lookAt, f.refused = at.Add(lookAgain), true
}

// answer returns the token of an answer that was read before now, and the greatest
// that is closed. taken is the database's time of the answer.
func (f *frontier) answer(at time.Time, taken int64, window time.Duration, l *look) (token, closed uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.moveOn(at)
	f.token++
	switch {
	case l != nil && l.fresh:
		f.freshAt, f.stale, f.refused = at, 0, false
		f.weigh(l)
	case l != nil:
		// Several who look at once keep each other's copies old: they come again
		// later, and not together.
		f.stale = min(f.stale+1, mostStale)
		f.lookAt = at.Add(rough.N(lookEvery << f.stale))
	}
	if f.freshAt.IsZero() {
		f.freshAt = at // it may take a while to get the first one
	}
	if f.refused || at.Sub(f.freshAt) > blindAfter {
		f.expire(taken - micros(window))
	}
	f.marks = f.marks[f.passed():]
	if n := len(f.marks); n == 0 || f.age-f.marks[n-1].age >= lookEvery {
		f.marks = append(f.marks, mark{token: f.token, age: f.age, at: taken})
	}
	f.thin()
	return f.token, f.closed
}

func (f *frontier) weigh(l *look) {
	for i := range f.marks {
		m := &f.marks[i]
		if !m.weighed && m.age+settleTime <= l.age {
			m.weighed, m.barrier = true, l.highest
		}
		if m.weighed && (l.lowest == 0 || l.lowest > m.barrier) {
			f.closed = max(f.closed, m.token)
		}
	}
}

// expire closes what is older than a time of the database's clock.
func (f *frontier) expire(before int64) {
	for i := range f.marks {
		if f.marks[i].at <= before {
			f.closed = max(f.closed, f.marks[i].token)
		}
	}
}

// passed counts the marks that are closed.
func (f *frontier) passed() (n int) {
	for n < len(f.marks) && f.marks[n].token <= f.closed {
		n++
	}
	return n
}

// thin drops every other mark when a transaction stays open for long. What it
// marked is closed with the next.
func (f *frontier) thin() {
	if len(f.marks) <= mostMarks {
		return
	}
	kept := f.marks[:0]
	for i := range f.marks {
		if i%2 == 0 || i == len(f.marks)-1 {
			kept = append(kept, f.marks[i])
		}
	}
	f.marks = kept
}
