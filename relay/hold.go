package relay

import (
	"container/heap"
	"time"

	"github.com/waybillhq/waybill/store"
)

// hold keeps a key back: for a time, or where dead is set until a person acts.
// The rows that wait in memory are parked.
func (s *scheduler) hold(k *key, until time.Time, dead bool) {
	if k.state == held && k.dead {
		s.deadKeys--
	}
	k.state, k.dead, k.probe = held, dead, false
	k.timer++
	if dead {
		s.deadKeys++
	} else {
		heap.Push(&s.timers, timerEntry{at: until, key: k, turn: k.timer})
	}
	for _, r := range k.queue {
		s.park(r)
	}
	k.queue = nil
}

func (s *scheduler) park(r *row) {
	if r.data.Parked {
		s.forget(r)
		return
	}
	s.write(r)
	s.changes.park(r)
}

// drain lets a key go on by reading it, lowest id first.
func (s *scheduler) drain(k *key, probe bool) {
	if k.state == draining {
		return
	}
	if k.state == held && k.dead {
		s.deadKeys--
	}
	k.state, k.dead, k.probe = draining, false, probe
	k.timer++
	for _, r := range k.queue {
		s.forget(r)
	}
	k.queue = nil
	s.wantRead(k)
}

// wantRead queues a read by key, once nothing of it is under way.
func (s *scheduler) wantRead(k *key) {
	if k.state != draining || k.reading || k.flying > 0 || k.writes > 0 || len(k.queue) > 0 {
		return
	}
	if s.topicPauses[k.thash] != nil {
		return // resumed with the topic
	}
	k.reading = true
	s.reads.keys = append(s.reads.keys, k)
}

// dueTimers drains the keys whose time has come.
func (s *scheduler) dueTimers() {
	at := now()
	for len(s.timers) > 0 && !s.timers[0].at.After(at) {
		entry := heap.Pop(&s.timers).(timerEntry)
		k := entry.key
		if k.timer == entry.turn && k.state == held && s.live(k) {
			s.drain(k, false)
		}
	}
}

// onKeyRead takes the answer of a read by key.
func (s *scheduler) onKeyRead(k *key, result store.FetchResult, read time.Time) {
	k.reading = false
	if !s.live(k) || k.state != draining {
		return
	}
	if len(result.Rows) == 0 {
		k.state = open
		k.probe = false
		s.release(k)
		return
	}
	for i := range result.Rows {
		data := result.Rows[i]
		if s.known[data.ID] != nil {
			continue // written since, or under way
		}
		if data.Status == store.StatusDead && !data.Skip {
			if s.config.topic(data.Event.Topic).OnDead == Continue {
				continue
			}
			if len(k.queue) == 0 {
				s.hold(k, time.Time{}, true)
			}
			break
		}
		if data.HasRetry && data.RetryIn > 0 {
			if len(k.queue) == 0 {
				s.hold(k, read.Add(data.RetryIn), false)
			}
			break
		}
		k.push(s.know(k, data, read))
	}
	k.probe = false
	if k.state == draining && len(k.queue) == 0 {
		s.wantRead(k)
		return
	}
	s.makeReady(k)
}
