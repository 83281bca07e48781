package mysql

import (
	"testing"
	"time"
)

// watching drives a frontier by a clock of its own.
type watching struct {
	f      frontier
	at     time.Time
	window time.Duration
}

func newWatching() *watching {
	return &watching{at: time.Unix(1_000_000, 0), window: time.Minute}
}

// ask lets time pass and asks; running are the transactions of a fresh list, nil
// says that the list is an old copy.
func (w *watching) ask(after time.Duration, running []int64) (token, closed uint64) {
	w.at = w.at.Add(after)
	l := w.f.begin(w.at)
	if l != nil && running != nil {
		l.fresh = true
		for _, n := range running {
			if l.lowest == 0 || n < l.lowest {
				l.lowest = n
			}
			l.highest = max(l.highest, n)
		}
	}
	return w.f.answer(w.at, w.at.UnixMicro(), w.window, l)
}

// askFor asks every step for a time, and returns the last answer.
func (w *watching) askFor(span, step time.Duration, running []int64) (closed uint64) {
	for end := w.at.Add(span); w.at.Before(end); {
		_, closed = w.ask(step, running)
	}
	return closed
}

const step = 50 * time.Millisecond

var nobody = []int64{}

func TestWatchClosesWhenWhoeverRanHasEnded(t *testing.T) {
	w := newWatching()
	token, closed := w.ask(0, []int64{7, 9})
	if closed >= token {
		t.Fatal("closed at once, though an id may be on its way")
	}
	if closed = w.askFor(5*time.Second, step, []int64{7, 9, 12}); closed >= token {
		t.Error("closed while transaction 7 runs")
	}
	if closed = w.askFor(5*time.Second, step, []int64{9, 15}); closed >= token {
		t.Error("closed while transaction 9 runs")
	}
	if closed = w.askFor(time.Second, step, []int64{15}); closed < token {
		t.Error("not closed, and only later transactions run")
	}
}

func TestWatchGivesAnInsertTimeToShow(t *testing.T) {
	w := newWatching()
	token, _ := w.ask(0, nobody)
	if closed := w.askFor(settleTime-step, step, nobody); closed >= token {
		t.Error("closed before an INSERT that had its id could be seen")
	}
	if closed := w.askFor(2*lookEvery, step, nobody); closed < token {
		t.Error("not closed though nobody was there")
	}
}

// While the server or this process stands still, an INSERT does too.
func TestWatchDoesNotCountPauses(t *testing.T) {
	w := newWatching()
	token, _ := w.ask(0, nobody)
	if _, closed := w.ask(time.Hour, nobody); closed >= token {
		t.Error("a pause was counted as time that an INSERT had")
	}
}

func TestWatchDistrustsOldCopies(t *testing.T) {
	w := newWatching()
	token, _ := w.ask(0, nobody)
	if closed := w.askFor(w.window-time.Second, step, nil); closed >= token {
		t.Error("closed by a list that may be from before")
	}
	if closed := w.askFor(2*time.Second, step, nil); closed < token {
		t.Error("not closed by the window, though the list is never fresh")
	}
}

func TestWatchIsNotHurriedByTheWindowWhereTheListIsFresh(t *testing.T) {
	w := newWatching()
	token, _ := w.ask(0, []int64{7})
	if closed := w.askFor(3*w.window, step, []int64{7}); closed >= token {
		t.Error("closed by the window over a transaction that is seen to run")
	}
	if n := len(w.f.marks); n > mostMarks {
		t.Errorf("%d marks are kept, limit %d", n, mostMarks)
	}
	if closed := w.askFor(2*lookEvery, step, nobody); closed < token {
		t.Error("not closed after its end")
	}
}

// Another server, after a failover, may count from elsewhere.
func TestWatchGoesOnWhereNumbersBeginAnew(t *testing.T) {
	w := newWatching()
	w.askFor(3*time.Second, step, []int64{1_000_000})
	token, _ := w.ask(step, []int64{50})
	closed := uint64(0)
	for n := int64(51); n < 200 && closed < token; n++ {
		_, closed = w.ask(step, []int64{n})
	}
	if closed < token {
		t.Error("never closed on a server whose numbers are lower")
	}
}
