package inbox

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
	"github.com/waybillhq/waybill/store"
)

// Handler applies one event inside a transaction of the consumer's database.
//
// Whatever it does with tx is committed together with the fact that the event
// was consumed, or not at all. It must not end the transaction itself, and must
// not use it after it returned. Returning nil means that the event is applied;
// an error undoes what was done with tx, and the event is tried again later,
// unless the error says otherwise: see [RetryAfter], [Dead] and [Park]. A panic
// is a failure like an error. An error of tx must be returned: what a
// transaction can do after one differs between databases.
//
// ctx ends after [Config.HandlerTimeout]. The handler may be called again for
// an event that it handled, when the transaction could not be committed. It is
// called from several goroutines, but never twice at once for one key in one
// process.
type Handler[TX any] func(ctx context.Context, tx TX, event waybill.Event) error

// Processor reads events for one group and has a handler apply them. TX is the
// type of the store's transactions.
type Processor[TX any] struct {
	st        store.Consumer[TX]
	sub       broker.Subscriber
	handler   Handler[TX]
	config    Config
	condition *condition
	pause     *pause
	alone     *alone
	size      *groupSize
	pace      *pace
	versions  *versions
	abandoned *abandoned
	calls     *calls
	letters   *letters
	nudge     chan struct{} // wakes the releaser
	waits     atomic.Bool   // something was held WAITING here
	running   atomic.Bool
}

// New returns a processor. It touches neither the database nor the broker:
// [Processor.Run] does.
func New[TX any](st store.Consumer[TX], sub broker.Subscriber, handler Handler[TX], config *Config) (*Processor[TX], error) {
	if st == nil || sub == nil || handler == nil || config == nil {
		return nil, &waybill.Error{Op: "configure consumer", Err: errNoHandler}
	}
	given := *config
	if _, one := st.(store.OneWriter); one && given.Workers == 0 {
		given.Workers = 1
	}
	c := given.withDefaults()
	if err := c.check(); err != nil {
		return nil, err
	}
	c.rememberer()
	c.fitEffects()
	p := &Processor[TX]{
		st: st, sub: sub, handler: fitted(&c, handler), config: c,
		condition: newCondition(c.Logger, &c.Events),
		alone:     newAlone(c.RetryWorkers + c.Workers),
		size:      newGroupSize(c.BatchSize),
		pace:      &pace{},
		versions:  newVersions(),
		abandoned: &abandoned{},
		calls:     newCalls(st, &c),
		nudge:     make(chan struct{}, 1),
	}
	p.letters = newLetters(st, &p.config)
	p.pause = newPause(&c, p.pauseChanged)
	return p, nil
}

var (
	errRunning   = errors.New("it runs already")
	errGraceOver = errors.New("the grace period is over")
)

// Run consumes until ctx ends. It then lets the handlers that run finish,
// commits what they did, tells the broker, gives up its partitions and returns
// nil; what is not done within [Config.Grace] is rolled back and will be
// delivered again. A database or a broker that is away is waited for. Run
// returns an error at once when the tables are missing or do not fit, and at
// the end when a handler still runs that did not heed its context.
//
// A processor may run again after Run returned, but not twice at once.
func (p *Processor[TX]) Run(ctx context.Context) error {
	if !p.running.CompareAndSwap(false, true) {
		return &waybill.Error{Op: "run consumer", Key: p.config.Group, Err: errRunning}
	}
	defer p.running.Store(false)
	p.condition.update(func(c *condition) { c.running = true })
	defer p.condition.update(func(c *condition) {
		c.running, c.ready, c.oldest = false, false, time.Time{}
		clear(c.troubles)
	})

	// work outlives ctx by the grace period.
	work, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	var background sync.WaitGroup
	background.Go(func() {
		select {
		case <-ctx.Done():
		case <-work.Done():
			return
		}
		if pauseFor(work, p.config.Grace) {
			cancel(errGraceOver)
		}
	})
	defer background.Wait()
	defer cancel(nil)

	if err := p.checkTables(ctx); err != nil {
		return err
	}
	subscription := p.subscribe(ctx)
	if subscription == nil {
		return nil
	}
	if err := p.checkRetention(ctx); err != nil {
		_ = subscription.Close()
		return err
	}
	p.condition.update(func(c *condition) { c.ready = true })
	err := p.consume(ctx, work, subscription)
	if closeErr := subscription.Close(); err == nil && closeErr != nil {
		p.config.Logger.Warn("consumer could not leave the broker's group", "error", closeErr)
	}
	return err
}

// consume runs the loops: the stream, what is held, what is missing, and the
// readers' rows.
func (p *Processor[TX]) consume(ctx, work context.Context, subscription broker.Subscription) error {
	f := newFeed(p, subscription)
	var loops sync.WaitGroup
	defer loops.Wait()
	// The rows are renewed for as long as handlers may run.
	keeping, stopKeeping := context.WithCancel(work)
	defer stopKeeping()
	loops.Go(func() {
		f.readers.keep(keeping, func(err error) { p.report(troubleReaders, err) })
	})
	loops.Go(func() {
		p.calls.keep(keeping, func(err error) { p.report(troubleCalls, err) })
	})
	loops.Go(func() {
		p.letters.run(ctx, func(err error) { p.report(troubleLetters, err) })
	})
	released := make(chan struct{})
	loops.Go(func() {
		defer close(released)
		p.release(ctx, work)
	})
	loops.Go(func() { p.relearn(ctx) })
	loops.Go(func() { newGaps(p).watch(ctx) })
	f.run(ctx, work)
	<-released
	stopKeeping()

	left := p.abandoned.wait(work)
	// Leaving has a little time of its own: the grace period may be used up.
	leaving, cancel := context.WithTimeout(context.WithoutCancel(work), leaveTimeout)
	defer cancel()
	f.commit(leaving)
	f.unmark(leaving)
	p.keepAnswers(leaving, f.pending)
	if err := f.readers.leave(leaving, left == 0); err != nil {
		p.config.Logger.Warn("consumer could not give up its partitions; they expire by themselves", "error", err)
	}
	if left > 0 {
		return &waybill.Error{
			Op: "stop consumer", Key: p.config.Group, Err: fmt.Errorf("%d handlers still run: %w", left, ErrHandlerTimeout),
			Hint: "what they did is rolled back; a handler must return when its context ends",
		}
	}
	return nil
}

// leaveTimeout bounds the calls that say good-bye.
const leaveTimeout = 5 * time.Second

// checkTables waits for the database, and refuses tables that do not fit.
func (p *Processor[TX]) checkTables(ctx context.Context) error {
	for failures := 1; ; failures++ {
		meta, err := p.st.ReadMeta(ctx)
		if err == nil && !meta.Inbox {
			err = store.ErrNoSchema
		}
		switch {
		case err == nil:
			p.condition.fine(troubleDatabase)
			return nil
		case errors.Is(err, store.ErrNoSchema), errors.Is(err, store.ErrSchemaOlder):
			return &waybill.Error{Op: "run consumer", Key: p.config.Group, Err: err, Hint: "migrate the consumer's database first"}
		case errors.Is(err, store.ErrSchemaNewer):
			return &waybill.Error{Op: "run consumer", Key: p.config.Group, Err: err, Hint: "update this program"}
		case ctx.Err() != nil:
			return nil
		}
		p.condition.complain(troubleDatabase, err)
		if !pauseFor(ctx, backoff(failures, retryFirst, retryLast)) {
			return nil
		}
	}
}

// The bounds of the pause after a failure of the database or the broker.
const (
	retryFirst = 50 * time.Millisecond
	retryLast  = 5 * time.Second
)

// subscribe waits for the broker. It returns nil when ctx ended first.
func (p *Processor[TX]) subscribe(ctx context.Context) broker.Subscription {
	request := broker.SubscribeRequest{Group: p.config.Group, Topics: p.config.Topics}
	for failures := 1; ctx.Err() == nil; failures++ {
		subscription, err := p.sub.Subscribe(ctx, request)
		if err == nil {
			p.condition.fine(troubleBroker)
			return subscription
		}
		if ctx.Err() != nil {
			break
		}
		p.condition.complain(troubleBroker, err)
		pauseFor(ctx, backoff(failures, retryFirst, retryLast))
	}
	return nil
}

func (p *Processor[TX]) report(source string, err error) {
	if err != nil {
		p.condition.complain(source, err)
	} else {
		p.condition.fine(source)
	}
}

func (p *Processor[TX]) pauseChanged(on bool) {
	if on {
		p.config.Logger.Error("the handler fails for every key: paused, trying one event from time to time", "keys", p.config.PauseAfter)
	} else {
		p.config.Logger.Info("an event was applied: going on")
	}
	p.wakeReleaser()
	tell(p.config.Events.Paused, PausedInfo{On: on})
}

func (p *Processor[TX]) wakeReleaser() {
	select {
	case p.nudge <- struct{}{}:
	default:
	}
}
