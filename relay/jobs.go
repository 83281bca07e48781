package relay

// Jobs are goroutines that stay: one that is made for each statement grows its
// stack anew each time, which costs a tenth of a relay's processor time while
// events trickle in.
type jobs chan func()

// newJobs has n of them, as many as there are jobs at once.
func newJobs(n int) jobs {
	j := make(jobs)
	for range n {
		go func() {
			for do := range j {
				do()
			}
		}()
	}
	return j
}

func (j jobs) do(job func()) { j <- job }

func (j jobs) end() { close(j) }
