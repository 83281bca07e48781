package relay

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/waybillhq/waybill/cdc"
	"github.com/waybillhq/waybill/internal/fault"
	"github.com/waybillhq/waybill/store"
)

// A tail reads the database's log, beside the scheduler, and hands on what it
// tells. It is made when the relay has taken all lanes, and ends before the relay
// has given one back. It begins anew by itself after whatever goes wrong.
type tail struct {
	source cdc.Source
	store  Store
	config *Config
	guard  store.Guard
	name   string // of its marks
	news   chan<- tailNews

	cancel context.CancelFunc
	ending bool // the scheduler has called cancel
	drop   bool // of what the source made the database keep; set before cancel

	mu    sync.Mutex
	acked cdc.Position
	saved cdc.Position
	marks int
	beat  string // a mark that was not read back yet
	beats time.Time
	round time.Duration // of the last mark that was read back
	shown bool          // a mark was read back since the stream was opened
}

// tailNews is what a tail tells the scheduler: one of a change of state, a
// batch, a look at the log, and its end.
type tailNews struct {
	tail   *tail
	state  cdc.State
	err    error
	stream cdc.Stream // opened
	start  string     // the mark to wait for
	batch  *cdc.Batch
	status *cdc.Status
	done   bool
}

const (
	openPatience  = 30 * time.Second
	waitPause     = 500 * time.Millisecond // while another process reads
	tailPauseMin  = 500 * time.Millisecond
	tailPauseMax  = 15 * time.Second
	closePatience = 5 * time.Second
)

// run reads until ctx ends. Its last news is that it is done.
func (t *tail) run(ctx context.Context) {
	var from cdc.Position
	known := false // where to begin
	for failures := 0; ctx.Err() == nil; {
		var err error
		if !known {
			from, err = t.position(ctx)
			known = err == nil
		}
		if err == nil {
			from, err = t.follow(ctx, from)
		}
		if ctx.Err() != nil {
			break
		}
		state := cdc.StateOf(err)
		t.tell(ctx, tailNews{state: state, err: err})
		if state.Lost() && from != "" {
			// What the log does not have any more is in the queue.
			from = ""
			continue
		}
		if t.heard() {
			failures = 0 // it went well for a while
		}
		pause := waitPause
		if state != cdc.Waiting {
			pause = backoff(tailPauseMin, tailPauseMax, failures)
			failures++
		}
		sleep(ctx, pause)
	}
	t.end(ctx)
}

// position returns where the log was left.
func (t *tail) position(ctx context.Context) (cdc.Position, error) {
	positions, err := t.store.ListPositions(ctx)
	for _, p := range positions {
		if p.Source == t.source.Name() {
			t.saved = cdc.Position(p.Position)
			return t.saved, err
		}
	}
	return "", err
}

// follow reads one stream to its end, and returns the last position that was
// acknowledged.
func (t *tail) follow(ctx context.Context, from cdc.Position) (cdc.Position, error) {
	t.tell(ctx, tailNews{state: cdc.Opening})
	t.mu.Lock()
	t.shown = false
	t.mu.Unlock()
	stream, err := t.open(ctx, from)
	if err != nil {
		return from, err
	}
	fault.Point("relay.log_opened")
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	kept := make(chan struct{})
	defer func() {
		cancel(nil)
		<-kept
		closing, stop := context.WithTimeout(context.WithoutCancel(ctx), closePatience)
		defer stop()
		if err := stream.Close(closing); err != nil {
			t.config.Logger.Warn("the log's stream did not close well", "source", t.source.Name(), "error", err)
		}
	}()
	start, err := t.mark(ctx)
	if err != nil {
		close(kept)
		return from, err
	}
	t.tell(ctx, tailNews{stream: stream, start: start})
	go func() {
		defer close(kept)
		cancel(t.keep(ctx))
	}()
	for {
		batch, err := stream.Next(ctx)
		if err != nil {
			if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
				err = cause
			}
			return t.lastAck(from), err
		}
		t.readBack(batch.Marks)
		t.tell(ctx, tailNews{batch: &batch})
		fault.Point("relay.told")
	}
}

func (t *tail) open(ctx context.Context, from cdc.Position) (cdc.Stream, error) {
	ctx, cancel := context.WithTimeout(ctx, openPatience)
	defer cancel()
	if err := t.source.Setup(ctx); err != nil {
		return nil, err
	}
	return t.source.Open(ctx, from)
}

func (t *tail) lastAck(from cdc.Position) cdc.Position {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.acked != "" {
		return t.acked
	}
	return from
}

// ack is called by the scheduler.
func (t *tail) ack(stream cdc.Stream, position cdc.Position) {
	t.mu.Lock()
	t.acked = position
	t.mu.Unlock()
	stream.Ack(position)
}

// mark writes a mark of its own.
func (t *tail) mark(ctx context.Context) (string, error) {
	t.mu.Lock()
	t.marks++
	text := fmt.Sprintf("%s/%d", t.name, t.marks)
	t.beat, t.beats = text, now()
	t.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, openPatience)
	defer cancel()
	return text, t.source.Mark(ctx, text)
}

func (t *tail) readBack(marks []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, text := range marks {
		if text == t.beat {
			t.beat, t.round, t.shown = "", now().Sub(t.beats), true
		}
	}
}

// heard reports whether the last stream has shown a mark: then it was a sound
// one, and what ended it is not what ended the one before.
func (t *tail) heard() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.shown
}

// roundTrip returns how long the last mark took that was read back.
func (t *tail) roundTrip() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.round
}

// unanswered returns the mark that was not read back yet, and since when.
func (t *tail) unanswered() (mark string, wait time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.beat == "" {
		return "", 0
	}
	return t.beat, now().Sub(t.beats)
}

// errSilent ends a stream that shows nothing any more.
var errSilent = errors.New("the log shows nothing of what was written to it")

// silence is how many heartbeats a mark may take to be read back.
const silence = 6

// keep marks the log, saves the position and looks at the log from outside, from
// time to time. Its error ends the stream.
func (t *tail) keep(ctx context.Context) error {
	for ctx.Err() == nil {
		t.look(ctx)
		sleep(ctx, t.config.Heartbeat)
		if ctx.Err() != nil {
			return nil
		}
		if err := t.save(ctx); errors.Is(err, store.ErrStale) {
			return err
		}
		if _, waited := t.unanswered(); waited > 0 {
			if waited > silence*t.config.Heartbeat {
				return cdc.Refused(cdc.Unreachable, fmt.Errorf("%w for %v", errSilent, waited.Round(time.Second)), "")
			}
			continue
		}
		if _, err := t.mark(ctx); err != nil && ctx.Err() == nil {
			t.config.Logger.Warn("the log could not be marked", "source", t.source.Name(), "error", err)
		}
	}
	return nil
}

func (t *tail) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, openPatience)
	defer cancel()
	status, err := t.source.Status(ctx)
	if err == nil {
		t.tell(ctx, tailNews{status: &status})
	}
}

// save writes the position down, so that another process begins there.
func (t *tail) save(ctx context.Context) error {
	t.mu.Lock()
	acked, saved := t.acked, t.saved
	t.mu.Unlock()
	if acked == "" || acked == saved {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, openPatience)
	defer cancel()
	err := t.store.SavePosition(ctx, t.guard, t.source.Name(), string(acked))
	if err == nil {
		t.mu.Lock()
		t.saved = acked
		t.mu.Unlock()
	}
	return err
}

// end saves the position, or drops what the source made where polling goes on.
func (t *tail) end(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closePatience)
	defer cancel()
	if t.drop {
		if err := t.dropSource(ctx); err != nil {
			t.config.Logger.Warn("the log could not be let go: until that is done the database keeps it", "source", t.source.Name(), "error", err)
		}
	} else if err := t.save(ctx); err != nil && !errors.Is(err, store.ErrStale) {
		t.config.Logger.Warn("the position in the log was not saved", "source", t.source.Name(), "error", err)
	}
	t.news <- tailNews{tail: t, done: true}
}

func (t *tail) dropSource(ctx context.Context) error {
	if err := t.source.Drop(ctx); err != nil {
		return err
	}
	return t.store.SavePosition(ctx, t.guard, t.source.Name(), "")
}

// tell hands news to the scheduler, which takes them soon.
func (t *tail) tell(ctx context.Context, news tailNews) {
	news.tail = t
	select {
	case t.news <- news:
	case <-ctx.Done():
	}
}
