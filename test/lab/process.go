package lab

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// KillAt runs the test binary once more, as a child with further variables of
// environment, kills it with SIGKILL as soon as a file is there, and returns
// what it wrote.
func KillAt(t testing.TB, file string, environment ...string) string {
	t.Helper()
	var output Output
	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), environment...)
	child.Stdout, child.Stderr = &output, &output
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	Until(t, time.Minute, "the child at "+file, func() bool {
		_, err := os.Stat(file)
		return err == nil
	})
	if err := child.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatalf("%v: %s", err, output.String())
	}
	_ = child.Wait() // with the signal
	return output.String()
}
