package inbox

import (
	"context"
	"slices"
	"time"

	"github.com/waybillhq/waybill/store"
)

// maxReleasable bounds one look for keys that have something to do.
const maxReleasable = 64

// releaser hands keys that have something to do to workers.
type releaser[TX any] struct {
	p    *Processor[TX]
	busy map[store.HeldKeyRef]bool
	done chan released
	// careful is set until nothing that was held at the start is left to do: one
	// of these events may have taken the last process down.
	careful  bool
	turn     int
	failures int
	counted  time.Time
	checked  int64 // the Seq up to which DEAD events were compared with what is consumed
}

type released struct {
	key      store.HeldKeyRef
	progress bool
	err      error
}

// release handles what is held until stop ends, and returns when its workers
// have ended.
func (p *Processor[TX]) release(stop, work context.Context) {
	r := &releaser[TX]{
		p: p, careful: true,
		busy: make(map[store.HeldKeyRef]bool),
		done: make(chan released, p.config.RetryWorkers),
	}
	for stop.Err() == nil {
		wait := r.look(stop, work)
		r.wait(stop, wait)
	}
	for len(r.busy) > 0 {
		r.ended(<-r.done)
	}
}

// look starts workers for what can be done now, and returns when to look again.
func (r *releaser[TX]) look(stop, work context.Context) time.Duration {
	p := r.p
	started, err := r.start(stop, work)
	var next time.Duration
	var scheduled bool
	if err == nil {
		next, scheduled, err = p.st.NextRetry(stop, p.config.Group)
	}
	if err == nil && now().Sub(r.counted) >= p.config.CountEvery {
		r.counted = now()
		if err = p.count(stop); err == nil {
			err = r.dropConsumed(stop)
		}
	}
	if stop.Err() != nil {
		return 0
	}
	p.report(troubleHeld, err)
	if err != nil {
		r.failures++
		return backoff(r.failures, retryFirst, retryLast)
	}
	r.failures = 0
	wait := p.config.SweepEvery
	if on, trial, _ := p.pause.state(fromHeld); on {
		return max(min(wait, trial), time.Millisecond)
	}
	if scheduled && next < wait && len(r.busy) < p.config.RetryWorkers {
		// What is due already is being worked on, or has just become due.
		switch {
		case next > 0:
			wait = max(next, 10*time.Millisecond)
		case started == 0:
			wait = min(wait, 100*time.Millisecond)
		}
	}
	return wait
}

// start gives keys to free workers.
func (r *releaser[TX]) start(stop, work context.Context) (started int, err error) {
	p := r.p
	slots := p.config.RetryWorkers
	paused, wait, _ := p.pause.state(fromHeld)
	if paused && wait > 0 {
		return 0, nil
	}
	if paused || r.careful {
		slots = 1
	}
	if len(r.busy) >= slots {
		return 0, nil
	}
	keys, err := p.st.ReleasableKeys(stop, p.config.Group, p.config.OnDead == Hold, maxReleasable+len(r.busy))
	if err != nil {
		return 0, err
	}
	if len(keys) == 0 && len(r.busy) == 0 {
		r.careful = false
	}
	if paused && len(keys) > 0 {
		// Another key each time: the first may have trouble of its own.
		r.turn++
		i := r.turn % len(keys)
		keys = keys[i : i+1]
		p.pause.tried(fromHeld)
	}
	for _, key := range keys {
		if len(r.busy) >= slots {
			break
		}
		if r.busy[key] {
			continue
		}
		r.busy[key] = true
		started++
		job := &release[TX]{p: p, key: key, limit: p.config.BatchSize, careful: r.careful, trial: paused}
		if job.careful || job.trial {
			job.limit = 1
		}
		go func() { r.done <- job.work(stop, work) }()
	}
	return started, nil
}

// work runs the job, all alone where it may take the process down.
func (j *release[TX]) work(stop, work context.Context) released {
	out := released{key: j.key}
	enter := j.p.alone.share
	if j.careful {
		enter = j.p.alone.exclude
	}
	leave := enter(stop)
	if leave == nil {
		return out
	}
	defer leave()
	out.progress, out.err = j.run(stop, work)
	return out
}

// wait waits until it is time to look again: a worker that got something done
// may have left more.
func (r *releaser[TX]) wait(stop context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			return
		case <-r.p.nudge:
			return
		case <-stop.Done():
			return
		case out := <-r.done:
			if r.ended(out) {
				return
			}
		}
	}
}

func (r *releaser[TX]) ended(out released) (again bool) {
	delete(r.busy, out.key)
	if out.err != nil {
		r.p.condition.complain(troubleHeld, out.err)
	}
	return out.progress && out.err == nil
}

// maxChecked bounds the DEAD events that one round compares.
const maxChecked = 50

// dropConsumed removes DEAD events that are consumed. A reader that had lost its
// partition without knowing may apply an event in the moment in which the new
// one gives it up; a person must not be asked about that, nor its key wait. (What
// is in RETRY finds out by itself.)
func (r *releaser[TX]) dropConsumed(ctx context.Context) error {
	p := r.p
	group := p.config.Group
	dead, err := p.st.ListHeld(ctx, group, store.HeldFilter{State: store.HeldDead, After: r.checked, Limit: maxChecked})
	if err != nil {
		return err
	}
	for _, h := range dead {
		rows, err := p.st.FindConsumed(ctx, h.Event.ID)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(rows, func(c store.Consumed) bool { return c.Group == group }) {
			p.config.Logger.Warn("a dead event was applied by another reader: no longer held", "event", h.Event.ID)
			if err := p.drop(ctx, h); err != nil {
				return err
			}
		}
		r.checked = h.Seq
	}
	if len(dead) < maxChecked {
		r.checked = 0
	}
	return nil
}

func (p *Processor[TX]) drop(ctx context.Context, h store.Held) error {
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	return p.inKey(ctx, store.HeldKeyRef{Topic: h.Topic, Key: h.Key}, func(tx store.InboxTx[TX]) error {
		if _, err := tx.DeleteHeld(ctx, p.config.Group, h.Event.ID); err != nil {
			return err
		}
		if _, counted := newGate(&p.config).counted(&h.Event); !counted {
			return nil
		}
		return catchUp(ctx, tx, p.config.Group, &h.Event)
	})
}
