package relay

import "time"

// pauseMax bounds the pause of a scope: when it is back, all flows soon after.
const pauseMax = 10 * time.Second

// A pause stops sending to the broker or to one topic.
type pause struct {
	active bool
	until  time.Time
	since  time.Time
	times  int
	err    error
}

func (p *pause) extend(s *scheduler, err error) time.Duration {
	if !p.active {
		p.active, p.since, p.times = true, now(), 0
	}
	wait := backoff(s.config.BackoffMin, min(s.config.BackoffMax, pauseMax), p.times)
	p.times++
	p.until, p.err = now().Add(wait), err
	return wait
}

// A topicPause is a topic that cannot be sent to. One of its rows is kept in
// memory and tried when the pause ends; the others are read again afterwards,
// so that a denied topic with any number of rows costs the others nothing.
type topicPause struct {
	pause
	topic   string
	hash    int64
	probe   *key
	probeOK bool
}

// pauseBroker stops all sending for a while. Calls that fail together extend
// the pause once.
func (s *scheduler) pauseBroker(err error) {
	p := &s.brokerPause
	if p.active && now().Before(p.until) {
		return
	}
	first := !p.active
	wait := p.extend(s, err)
	if first {
		s.log.Warn("broker unavailable, sending pauses; no attempt is spent", "error", err)
		s.paused(PausedInfo{Scope: "broker", For: wait, Err: err})
	}
}

// brokerBlocks reports whether reading is pointless for now. It is not while the
// broker is tried: what is tried may be a record that never gets an answer, and
// others must show that the broker gives some.
func (s *scheduler) brokerBlocks(at time.Time) bool {
	return s.brokerPause.active && at.Before(s.brokerPause.until)
}

func (s *scheduler) brokerResumes() {
	p := &s.brokerPause
	if !p.active {
		return
	}
	s.log.Info("broker available again", "after", now().Sub(p.since))
	s.resumed(PausedInfo{Scope: "broker", For: now().Sub(p.since)})
	*p = pause{}
	s.reads.wakeUp()
}

// pauseTopic stops sending to the key's topic for a while. The first key that
// finds the topic unavailable is the one that tries it again.
func (s *scheduler) pauseTopic(k *key, err error) {
	if p := s.topicPauses[k.thash]; p != nil {
		if !now().Before(p.until) {
			p.extend(s, err)
		}
		return
	}
	p := &topicPause{topic: k.topic, hash: k.thash, probe: k}
	s.topicPauses[k.thash] = p
	wait := p.extend(s, err)
	s.log.Warn("topic unavailable, sending to it pauses; no attempt is spent", "topic", k.topic, "error", err)
	s.paused(PausedInfo{Scope: "topic", Topic: k.topic, For: wait, Err: err})
	for _, other := range s.keys {
		if other.thash == p.hash {
			s.trim(other)
		}
	}
}

// trim forgets the queued rows of a key whose topic is paused, but for the one
// row that tries the topic.
func (s *scheduler) trim(k *key) {
	keep := 0
	if s.topicPauses[k.thash].probe == k {
		keep = min(1, len(k.queue))
	}
	for _, r := range k.queue[keep:] {
		s.forget(r)
	}
	k.queue = k.queue[:keep]
}

// dueTopics tries paused topics whose time has come, and resumes those whose
// trial was accepted, or which have nothing left to try with.
func (s *scheduler) dueTopics() {
	at := now()
	for _, p := range s.topicPauses {
		probing := p.probe != nil && s.live(p.probe) && (len(p.probe.queue) > 0 || p.probe.flying > 0)
		switch {
		case p.probeOK, !probing && !at.Before(p.until):
			s.resumeTopic(p)
		case !at.Before(p.until):
			s.makeReady(p.probe)
		}
	}
}

// resumeTopic lets a topic go on. What was passed over or forgotten is found by
// reading the lanes from their lowest id.
func (s *scheduler) resumeTopic(p *topicPause) {
	delete(s.topicPauses, p.hash)
	s.log.Info("topic is sent to again", "topic", p.topic, "after", now().Sub(p.since))
	s.resumed(PausedInfo{Scope: "topic", Topic: p.topic, For: now().Sub(p.since)})
	s.restartLanes("a topic is sent to again")
	for _, k := range s.keys {
		if k.thash != p.hash {
			continue
		}
		s.makeReady(k)
		s.wantRead(k)
		s.release(k)
	}
	s.reads.wakeUp()
}

func (s *scheduler) pausedTopics() []int64 {
	hashes := make([]int64, 0, len(s.topicPauses))
	for hash := range s.topicPauses {
		hashes = append(hashes, hash)
	}
	return hashes
}

// An outage of the database stops everything but attempts to write and to renew.
type outage struct {
	down     bool
	write    bool // a write failed
	since    time.Time
	saidAt   time.Time
	said     bool // in this outage
	retryAt  time.Time
	failures int
	err      error
}

const outageSayEvery = 10 * time.Second

// databaseDown notes a failed statement. After a failed write only a write
// proves that all is well: a database may be read-only.
func (s *scheduler) databaseDown(err error, write bool) {
	o := &s.database
	at := now()
	wait := backoff(100*time.Millisecond, 5*time.Second, o.failures)
	o.failures++
	o.err, o.retryAt = err, at.Add(wait)
	o.write = o.write || write
	if write {
		s.provenAt = time.Time{}
	}
	if !o.down {
		o.down, o.since = true, at
		s.paused(PausedInfo{Scope: "database", For: wait, Err: err})
	}
	if at.Sub(o.saidAt) >= outageSayEvery {
		o.saidAt, o.said = at, true
		s.log.Warn("database unavailable, the relay waits for it", "error", err, "since", o.since)
	}
}

func (s *scheduler) databaseUp(write bool) {
	o := &s.database
	if write {
		s.provenAt = now()
	}
	if !o.down || o.write && !write {
		return
	}
	// Where one statement fails and others do not, outages come and go with each.
	if o.said {
		s.log.Info("database available again", "after", now().Sub(o.since))
	}
	s.resumed(PausedInfo{Scope: "database", For: now().Sub(o.since)})
	*o = outage{saidAt: o.saidAt}
}

func (s *scheduler) paused(info PausedInfo) {
	if s.config.Events.Paused != nil {
		s.config.Events.Paused(info)
	}
}

func (s *scheduler) resumed(info PausedInfo) {
	if s.config.Events.Resumed != nil {
		s.config.Events.Resumed(info)
	}
}
