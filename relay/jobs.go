package relay

import "sync"

// Jobs are goroutines that stay: one that is made for each statement grows its
// stack anew each time, which costs a tenth of a relay's processor time while
// events trickle in.
type jobs struct {
	next chan func()
	all  sync.WaitGroup
}

// newJobs has n of them, as many as there are jobs at once.
func newJobs(n int) *jobs {
	j := &jobs{next: make(chan func())}
	for range n {
		j.all.Go(func() {
			for do := range j.next {
				do()
			}
		})
	}
	return j
}

func (j *jobs) do(job func()) { j.next <- job }

func (j *jobs) end() {
	close(j.next)
	j.all.Wait()
}
