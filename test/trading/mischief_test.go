package trading

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
)

// mischief is a publisher that sends some records once more, at once or much
// later, and holds some back, behind others of their key.
type mischief struct {
	broker.Publisher
	duplicated, delayed float64 // shares of the records

	mu   sync.Mutex
	late []lateRecord
	busy bool // sending what was late
	sent struct{ all, again, held int }
}

type lateRecord struct {
	record waybill.Record
	due    time.Time
}

// Publish implements broker.Publisher. That it takes a record for stored which it
// holds back is the lie of a replaying producer.
func (m *mischief) Publish(ctx context.Context, records []waybill.Record) []error {
	errs := make([]error, len(records))
	var now []waybill.Record
	var at []int
	var later []lateRecord
	for i, r := range records {
		if rand.Float64() < m.delayed {
			later = append(later, lateRecord{clone(r), due(500 * time.Millisecond)})
			continue
		}
		now, at = append(now, r), append(at, i)
	}
	withheld := len(later)
	results := m.Publisher.Publish(ctx, now)
	for i, err := range results {
		errs[at[i]] = err
		records[at[i]].Place = now[i].Place
		if err == nil && rand.Float64() < m.duplicated {
			wait := time.Duration(0)
			if rand.IntN(2) == 0 {
				wait = 2 * time.Second
			}
			later = append(later, lateRecord{clone(now[i]), due(wait)})
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sent.all += len(records)
	m.sent.held += withheld
	m.sent.again += len(later) - withheld
	m.late = append(m.late, later...)
	return errs
}

func due(wait time.Duration) time.Time {
	return time.Now().Add(wait + time.Duration(rand.Int64N(int64(wait)+1)))
}

func clone(r waybill.Record) waybill.Record {
	r.Value, r.Headers = slices.Clone(r.Value), slices.Clone(r.Headers)
	return r
}

// run sends what is due until ctx ends.
func (m *mischief) run(ctx context.Context) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		m.mu.Lock()
		now := time.Now()
		var batch []waybill.Record
		m.late = slices.DeleteFunc(m.late, func(l lateRecord) bool {
			if l.due.After(now) || len(batch) == 500 {
				return false
			}
			batch = append(batch, l.record)
			return true
		})
		m.busy = len(batch) > 0
		m.mu.Unlock()
		if len(batch) == 0 {
			continue
		}
		rand.Shuffle(len(batch), func(i, j int) { batch[i], batch[j] = batch[j], batch[i] })
		results := m.Publisher.Publish(ctx, batch)
		m.mu.Lock()
		m.busy = false
		for i, err := range results {
			if err != nil {
				m.late = append(m.late, lateRecord{batch[i], now})
			}
		}
		m.mu.Unlock()
	}
}

// idle reports whether nothing is held back.
func (m *mischief) idle() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.late) == 0 && !m.busy
}

func (m *mischief) counts() (all, again, held int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sent.all, m.sent.again, m.sent.held
}
