package demo

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"
)

// view tells what happens: on a terminal one line is redrawn below the news,
// elsewhere it is repeated from time to time.
type view struct {
	w    io.Writer
	live bool

	mu      sync.Mutex
	began   time.Time
	current string
}

func newView(w io.Writer, live bool) *view { return &view{w: w, live: live, began: now()} }

const clearLine = "\r\x1b[K"

// say prints news.
func (v *view) say(format string, args ...any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	line := fmt.Sprintf("%6.1fs  ", now().Sub(v.began).Seconds()) + fmt.Sprintf(format, args...)
	if v.live {
		fmt.Fprintf(v.w, "%s%s\n%s", clearLine, line, v.current)
		return
	}
	fmt.Fprintln(v.w, line)
}

// show replaces the line that is redrawn.
func (v *view) show(line string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	line = fmt.Sprintf("%6.1fs  ", now().Sub(v.began).Seconds()) + line
	if !v.live {
		fmt.Fprintln(v.w, line)
		return
	}
	v.current = line
	fmt.Fprint(v.w, clearLine, line)
}

func (v *view) close() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.live {
		fmt.Fprint(v.w, clearLine)
	}
}

// display shows the counters until the returned function is called.
func (p *play) display(ctx context.Context) (stop func()) {
	every := 2 * time.Second
	if p.view.live {
		every = 200 * time.Millisecond
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for pause(ctx, every) {
			pending, err := p.orders.pending(ctx)
			if err != nil {
				continue
			}
			p.view.show(fmt.Sprintf("written %d/%d  queued %d  applied %d  duplicates %d  dead %d",
				p.orders.written.Load(), p.options.Events, pending, p.inventory.applied.Load(), p.inventory.duplicates.Load(), p.inventory.dead.Load()))
		}
	}()
	return func() { cancel(); <-done }
}
