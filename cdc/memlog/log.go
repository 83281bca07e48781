package memlog

import (
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/waybillhq/waybill/cdc"
)

// Log is the log of one database. The zero value is ready.
type Log struct {
	mu      sync.Mutex
	entries []entry // entry i stands at position first+i
	first   int
	slots   map[string]*slot
	grown   chan struct{} // closed when the log grows; nil while nobody waits
	refusal error
	garbles bool
	frozen  bool
	life    int // a reset begins another
}

// An entry is a transaction, or what else is logged.
type entry struct {
	ids         []int64
	mark        string
	truncate    bool
	undecodable int
	at          time.Time
}

// A slot is what the log keeps for the sources of one name.
type slot struct {
	place  int // the entries before it were acknowledged
	lost   bool
	holder *stream
}

var errBroken = errors.New("the connection broke")

// Commit logs a transaction that inserted these ids. The slice is not kept.
func (l *Log) Commit(ids ...int64) {
	if len(ids) > 0 {
		l.add(entry{ids: slices.Clone(ids)})
	}
}

// Truncate logs a TRUNCATE of the outbox.
func (l *Log) Truncate() { l.add(entry{truncate: true}) }

// Garble makes the ids of what is committed from now on unreadable, or readable
// again.
func (l *Log) Garble(on bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.garbles = on
}

// Freeze makes streams show nothing of what is logged, without an error, until it
// is called with false.
func (l *Log) Freeze(on bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.frozen = on
	l.wake()
}

func (l *Log) add(e entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e.at = now()
	if l.garbles && len(e.ids) > 0 {
		e.ids, e.undecodable = nil, len(e.ids)
	}
	l.entries = append(l.entries, e)
	l.wake()
	l.trim()
}

// wake has waiting streams look again; the log is locked.
func (l *Log) wake() {
	if l.grown != nil {
		close(l.grown)
		l.grown = nil
	}
}

// trim forgets what every slot acknowledged.
func (l *Log) trim() {
	least := l.end()
	for _, s := range l.slots {
		if !s.lost {
			least = min(least, s.place)
		}
	}
	l.entries = slices.Delete(l.entries, 0, least-l.first)
	l.first = least
}

func (l *Log) end() int { return l.first + len(l.entries) }

// Break ends all streams, as a restart of the server does.
func (l *Log) Break() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.breakStreams()
}

func (l *Log) breakStreams() {
	for _, s := range l.slots {
		if s.holder != nil {
			s.holder.fail(errBroken)
			s.holder = nil
		}
	}
}

// Lose ends all streams and makes every position lost, as a limit on what a log
// may keep does.
func (l *Log) Lose() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.breakStreams()
	for _, s := range l.slots {
		s.lost = true
	}
	l.life++
	l.trim()
}

// Refuse makes Setup and Open of all sources fail with this error until it is
// called with nil; open streams end.
func (l *Log) Refuse(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refusal = err
	if err != nil {
		l.breakStreams()
	}
}

// Retained returns how many transactions the log keeps for its slots.
func (l *Log) Retained() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.entries)
}

func (l *Log) position(place int) cdc.Position {
	return cdc.Position(strconv.Itoa(l.life) + "/" + strconv.Itoa(place))
}
