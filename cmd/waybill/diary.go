package main

import (
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/waybillhq/waybill/relay"
)

// deadLines is how many dead events are named between two sums: one bad
// deployment can kill a hundred thousand.
const deadLines = 20

// diary turns what a relay does into lines that a person can follow: each
// event that died, and every few seconds a sum of the rest. Lanes and outages
// are told by the relay itself.
type diary struct {
	logger *slog.Logger
	every  time.Duration

	mu     sync.Mutex
	sent   map[string]int // by topic, since the last line
	failed int
	dead   int           // since the last line
	oldest time.Duration // greatest age at delivery since the last line
	last   error         // of the failures
}

func newDiary(logger *slog.Logger) *diary {
	return &diary{logger: logger, every: 5 * time.Second, sent: make(map[string]int)}
}

func (d *diary) events() relay.Events {
	return relay.Events{
		Published: d.published,
		Failed:    d.refused,
		StaleWrite: func(i relay.StaleWriteInfo) {
			d.logger.Warn("a write was refused: the lanes had been taken over", "lanes", i.Lanes, "rows", i.Rows)
		},
		OutOfOrder: func(i relay.PublishedInfo) {
			d.logger.Warn("an event came after a newer version of its aggregate", "event", i.EventID, "topic", i.Topic, "key", i.Key)
		},
	}
}

func (d *diary) published(i relay.PublishedInfo) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sent[i.Topic]++
	d.oldest = max(d.oldest, i.Age)
}

func (d *diary) refused(i relay.FailedInfo) {
	if i.Dead {
		d.mu.Lock()
		d.dead++
		unnamed := d.dead > deadLines
		d.mu.Unlock()
		if unnamed {
			return
		}
		d.logger.Error("event is dead: it needs a decision", "event", i.EventID, "topic", i.Topic, "key", i.Key, "attempts", i.Attempt, "error", i.Err)
		return
	}
	d.logger.Debug("event failed", "event", i.EventID, "topic", i.Topic, "key", i.Key, "attempt", i.Attempt, "class", i.Class, "error", i.Err)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failed++
	d.last = i.Err
}

// start writes the sums until the returned function is called, which writes
// the last one.
func (d *diary) start() (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(d.every)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				d.sum()
			case <-done:
				d.sum()
				return
			}
		}
	}()
	return func() { close(done); <-ended }
}

func (d *diary) sum() {
	d.mu.Lock()
	sent, failed, dead, oldest, last := d.sent, d.failed, d.dead, d.oldest, d.last
	d.sent, d.failed, d.dead, d.oldest, d.last = make(map[string]int), 0, 0, 0, nil
	d.mu.Unlock()
	for _, topic := range slices.Sorted(maps.Keys(sent)) {
		d.logger.Info("sent", "topic", topic, "events", sent[topic], "oldest", oldest.Round(time.Millisecond).String())
	}
	if dead > deadLines {
		d.logger.Error("more events are dead than were named", "events", dead-deadLines)
	}
	if failed > 0 {
		d.logger.Warn("attempts failed, to be repeated", "attempts", failed, "last_error", last)
	}
}
