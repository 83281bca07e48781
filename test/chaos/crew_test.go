package chaos

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/waybillhq/waybill/test/lab"
)

// A post is what one process after the other does: this one is killed, the next
// one is started, as a service manager does.
type post struct {
	t    *testing.T
	role string
	// environment is that of the next process, which has this name.
	environment func(name string) ([]string, error)

	mu      sync.Mutex
	now     *lab.Process
	all     []*lab.Process
	ordered bool // its end was asked for
	frozen  bool
	over    bool
	away    int      // starts that failed because a server was away
	failed  []string // what processes said that ended by themselves after a start
	done    chan struct{}
}

// restartAfter is the pause of the service manager.
const restartAfter = 400 * time.Millisecond

var started atomic.Int64

// keep starts a process whenever there is none, until the post is closed.
func (p *post) keep() {
	p.done = make(chan struct{})
	p.t.Cleanup(func() {
		p.mu.Lock()
		p.over = true
		p.mu.Unlock()
		<-p.done
	})
	go func() {
		defer close(p.done)
		for {
			process, over := p.next()
			if over {
				return
			}
			if process == nil { // the database is away: try again soon
				time.Sleep(restartAfter)
				continue
			}
			<-process.Done()
			p.ended(process)
			time.Sleep(restartAfter)
		}
	}()
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndex(text, "\n")+1:]
}

func (p *post) next() (process *lab.Process, over bool) {
	name := fmt.Sprintf("%s-%d", p.role, started.Add(1))
	environment, err := p.environment(name)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over || err != nil {
		return nil, p.over
	}
	process, err = lab.Start(p.t, environment...)
	if err != nil {
		return nil, false
	}
	p.now = process
	p.all = append(p.all, process)
	return process, false
}

// order sends a signal that ends the process; false means that there was none.
func (p *post) order(signal syscall.Signal) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.now == nil || p.frozen && signal != syscall.SIGKILL || p.ordered {
		return false
	}
	p.ordered = true
	if p.now.Signal(signal) != nil {
		p.ordered = false // it has just ended by itself
		return false
	}
	return true
}

// freeze stops the process as by SIGSTOP; thaw lets it go on.
func (p *post) freeze() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.now == nil || p.frozen || p.ordered || p.now.Signal(syscall.SIGSTOP) != nil {
		return false
	}
	p.frozen = true
	return true
}

func (p *post) thaw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.frozen {
		p.frozen = false
		_ = p.now.Signal(syscall.SIGCONT)
	}
}

// leave has the last process stop in good order, and returns how it ended.
func (p *post) leave() error {
	p.mu.Lock()
	p.over = true
	p.ordered = true
	process := p.now
	p.mu.Unlock()
	if process == nil {
		<-p.done
		return nil
	}
	err := process.Signal(syscall.SIGTERM)
	<-p.done
	if err != nil {
		return err
	}
	return process.Err()
}

// ended notes why a process is no more.
func (p *post) ended(process *lab.Process) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var exit *exec.ExitError
	switch err := process.Err(); {
	case p.ordered:
	case errors.As(err, &exit) && exit.ExitCode() == exitAway:
		p.away++
	default:
		p.failed = append(p.failed, fmt.Sprintf("%v: %s", err, lastLine(process.Output.String())))
	}
	p.ordered, p.frozen = false, false
}

// count is how often the processes wrote a text.
func (p *post) count(text string) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, process := range p.all {
		n += strings.Count(process.Output.String(), text)
	}
	return n
}

// keepOutput writes to a folder, if there is one, what each of the processes wrote.
func (p *post) keepOutput(folder string, number int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if folder == "" {
		return nil
	}
	for i, process := range p.all {
		name := filepath.Join(folder, fmt.Sprintf("%d-%s-%03d.log", number, p.role, i))
		if err := os.WriteFile(name, []byte(process.Output.String()), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// tell writes what the processes wrote last, for a person to read.
func (p *post) tell() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, process := range p.all {
		if i < len(p.all)-3 {
			continue
		}
		text := process.Output.String()
		if len(text) > 3000 {
			text = "..." + text[len(text)-3000:]
		}
		if text != "" {
			p.t.Logf("%s, process %d of %d:\n%s", p.role, i+1, len(p.all), text)
		}
	}
}
