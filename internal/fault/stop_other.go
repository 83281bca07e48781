//go:build !unix

package fault

// Elsewhere there is no SIGSTOP: the goroutine that reached the point waits
// for the parent to end the process.
func stop() { select {} }
