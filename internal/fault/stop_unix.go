//go:build unix

package fault

import (
	"os"
	"os/signal"
	"syscall"
)

// stop stops the whole process, and this goroutine at once: the other threads
// take a moment to notice, in which this one could otherwise pass the point.
func stop() {
	resumed := make(chan os.Signal, 1)
	signal.Notify(resumed, syscall.SIGCONT)
	defer signal.Stop(resumed)
	_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	<-resumed
}
