package inbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
	"github.com/waybillhq/waybill/store"
)

// DeadLetterSuffix is what follows a topic's name in that of its dead letters.
const DeadLetterSuffix = ".DLT"

// Headers that a dead letter has beside those of the record that it copies. All
// are bounded: a record that failed a hundred times has them once.
const (
	letterPrefix        = "waybill-dlt-"
	letterGroup         = letterPrefix + "group"
	letterTopic         = letterPrefix + "topic"
	letterPartition     = letterPrefix + "partition"
	letterPosition      = letterPrefix + "position"
	letterEventID       = letterPrefix + "event-id"
	letterEventType     = letterPrefix + "event-type"
	letterError         = letterPrefix + "error"
	letterFirstError    = letterPrefix + "first-error"
	letterStack         = letterPrefix + "stack"
	letterAttempts      = letterPrefix + "attempts"
	letterFirstFailedAt = letterPrefix + "first-failed-at"
	letterLastFailedAt  = letterPrefix + "last-failed-at"
)

// Bounds of a letter's texts, in bytes: of a full one, and of one that was too
// large for the broker.
const (
	maxLetterError = 1 << 10
	maxLetterStack = 4 << 10
	maxShortError  = 128
)

const (
	// letterBatch bounds the letters of one call of the publisher.
	letterBatch = 100
	// letterAge is how long a letter of another process is left to that process.
	letterAge = 10 * time.Second
	// letterTimeout bounds one call of the publisher.
	letterTimeout = 30 * time.Second
	// letterBackoff is the longest pause while letters cannot be sent.
	letterBackoff = time.Minute
)

// letters sends the dead letters of a group, until the broker has confirmed
// them. What is DEAD stays held whatever happens to its letter.
type letters struct {
	st        store.DeadLetters
	publisher broker.Publisher
	config    *Config
	due       chan struct{}
	made      map[string]bool // topics that this process has made or found there
}

func newLetters(st store.DeadLetters, c *Config) *letters {
	return &letters{st: st, publisher: c.DeadLetters, config: c, due: make(chan struct{}, 1), made: make(map[string]bool)}
}

// wake says that an event has died here.
func (l *letters) wake() {
	select {
	case l.due <- struct{}{}:
	default:
	}
}

// run sends letters until ctx ends.
func (l *letters) run(ctx context.Context, report func(error)) {
	if l.publisher == nil {
		return
	}
	age := time.Duration(0) // the process before this one may have left some
	for failures := 0; ctx.Err() == nil; {
		err := l.round(ctx, age)
		if ctx.Err() != nil {
			return
		}
		report(err)
		if err != nil {
			failures++
			age = 0
			pauseFor(ctx, backoff(failures, time.Second, letterBackoff))
			continue
		}
		failures = 0
		age = l.wait(ctx)
	}
}

// wait waits for an event that dies here, whose letter is due at once, or until
// it is time to look for what others have left unsent.
func (l *letters) wait(ctx context.Context) (age time.Duration) {
	timer := time.NewTimer(l.config.CountEvery)
	defer timer.Stop()
	select {
	case <-l.due:
		return 0
	case <-timer.C:
		return letterAge
	case <-ctx.Done():
		return 0
	}
}

// round sends the letters that are due. Where a topic takes none for now, those of
// the others are sent all the same; where the broker takes none, the rest waits.
func (l *letters) round(ctx context.Context, age time.Duration) error {
	var first error
	shut := make(map[string]bool) // topics that take none
	for after, full := int64(0), true; full && ctx.Err() == nil; {
		dead, err := l.st.UnsentDead(ctx, l.config.Group, age, after, letterBatch)
		if err != nil {
			return err
		}
		if full = len(dead) == letterBatch; full {
			after = dead[len(dead)-1].Seq
		}
		dead = slices.DeleteFunc(dead, func(h store.Held) bool { return shut[h.Topic] })
		if dead, err = l.refuse(ctx, dead); err != nil {
			return err
		}
		if len(dead) == 0 {
			continue
		}
		err, isDown := l.batch(ctx, dead, shut)
		if first == nil {
			first = err
		}
		if isDown {
			break
		}
	}
	return first
}

// batch sends letters, and notes which topics took none. isDown says that no
// others are worth trying for now.
func (l *letters) batch(ctx context.Context, dead []store.Held, shut map[string]bool) (first error, isDown bool) {
	errs := l.send(ctx, dead, false)
	if l.makeTopics(ctx, dead, errs) {
		l.sendAgain(ctx, dead, errs)
	}
	fail := func(err error) {
		if first == nil {
			first = err
		}
	}
	for i := range dead {
		class, scope := broker.Classify(errs[i])
		switch {
		case errs[i] == nil:
		case class == broker.ClassPermanent:
			// Too large, perhaps: once more with less said.
			errs[i] = l.send(ctx, dead[i:i+1], true)[0]
			class, _ = broker.Classify(errs[i])
		case class == broker.ClassUnavailable && scope != broker.ScopeBroker:
			shut[dead[i].Topic] = true
		case class == broker.ClassUnavailable, class == broker.ClassUnknown:
			isDown = true
		}
		if err := l.settle(ctx, &dead[i], errs[i], errs[i] != nil && class == broker.ClassPermanent); err != nil {
			fail(err)
		}
	}
	return first, isDown
}

// sendAgain sends what was not sent because its topic was missing.
func (l *letters) sendAgain(ctx context.Context, dead []store.Held, errs []error) {
	var again []store.Held
	var at []int
	for i := range dead {
		if class, _ := broker.Classify(errs[i]); errs[i] != nil && class != broker.ClassPermanent {
			again, at = append(again, dead[i]), append(at, i)
		}
	}
	for i, err := range l.send(ctx, again, false) {
		errs[at[i]] = err
	}
}

var errNoLetter = errors.New("the topic can have no dead letters")

// refuse gives up the letters for which there can be no topic, and returns the
// others. A topic of dead letters has none itself: they would go round.
func (l *letters) refuse(ctx context.Context, dead []store.Held) ([]store.Held, error) {
	var kept []store.Held
	for i := range dead {
		if topic := dead[i].Topic; !strings.HasSuffix(topic, DeadLetterSuffix) && waybill.ValidTopic(topic+DeadLetterSuffix) {
			kept = append(kept, dead[i])
		} else if err := l.settle(ctx, &dead[i], errNoLetter, true); err != nil {
			return nil, err
		}
	}
	return kept, nil
}

func (l *letters) send(ctx context.Context, dead []store.Held, short bool) []error {
	ctx, cancel := context.WithTimeout(ctx, letterTimeout)
	defer cancel()
	records := make([]waybill.Record, len(dead))
	for i := range dead {
		records[i] = letterOf(&dead[i], short)
	}
	return l.publisher.Publish(ctx, records)
}

// settle notes what became of a letter. It returns an error where it is to be
// tried again.
func (l *letters) settle(ctx context.Context, h *store.Held, cause error, giveUp bool) error {
	info := DeadLetterInfo{Event: h.Event, Topic: h.Topic + DeadLetterSuffix, Err: cause, GivenUp: giveUp}
	info.Event.Topic = h.Topic
	if cause != nil && !giveUp {
		tell(l.config.Events.DeadLettered, info)
		return fmt.Errorf("dead letter of %s: %w", h.Event.ID, cause)
	}
	note := ""
	if giveUp {
		note = clip(cause.Error(), maxLetterError)
		l.config.Logger.Error("a dead letter cannot be sent: the event is held all the same", "event", h.Event.ID, "topic", info.Topic, "error", cause)
	}
	if err := l.st.NoteDeadLetter(ctx, *h, note); err != nil {
		return err
	}
	tell(l.config.Events.DeadLettered, info)
	return nil
}

// makeTopics makes the topics that letters were refused for, where the publisher
// can make topics at all. It reports whether that is all there was to it: the
// first letter of a topic is no trouble.
func (l *letters) makeTopics(ctx context.Context, dead []store.Held, errs []error) (first bool) {
	admin, ok := l.publisher.(broker.TopicAdmin)
	if !ok {
		return false
	}
	var missing []broker.TopicSpec
	for i := range dead {
		spec := broker.TopicSpec{Name: dead[i].Topic + DeadLetterSuffix}
		class, scope := broker.Classify(errs[i])
		if errs[i] != nil && class == broker.ClassUnavailable && scope == broker.ScopeTopic && !slices.Contains(missing, spec) {
			missing = append(missing, spec)
		}
	}
	if len(missing) == 0 {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, letterTimeout)
	defer cancel()
	if err := admin.EnsureTopics(ctx, missing); err != nil {
		l.config.Logger.Warn("topics of dead letters could not be made", "error", err)
		return false
	}
	first = true
	for _, spec := range missing {
		first = first && !l.made[spec.Name]
		l.made[spec.Name] = true
	}
	return first
}

// letterOf copies the record as it came, with what is known of the failure in
// headers. A record that is a dead letter itself loses the headers of the former
// death.
func letterOf(h *store.Held, short bool) waybill.Record {
	maxError, maxStack := maxLetterError, maxLetterStack
	if short {
		maxError, maxStack = maxShortError, 0
	}
	r := waybill.Record{EventID: h.Event.ID, Topic: h.Topic + DeadLetterSuffix, Key: h.Record.Key, Value: h.Record.Value}
	for _, header := range h.Record.Headers {
		if !strings.HasPrefix(strings.ToLower(header.Key), letterPrefix) {
			r.Headers = append(r.Headers, header)
		}
	}
	at := func(t time.Time) string {
		if t.IsZero() {
			return ""
		}
		return t.UTC().Format(time.RFC3339Nano)
	}
	for _, text := range [][2]string{
		{letterGroup, h.Group},
		{letterTopic, h.Topic},
		{letterPartition, strconv.FormatInt(int64(h.Partition), 10)},
		{letterPosition, strconv.FormatInt(h.Position, 10)},
		{letterEventID, h.Event.ID},
		{letterEventType, h.Event.Type},
		{letterAttempts, strconv.Itoa(h.Attempts)},
		{letterError, clip(h.LastErr, maxError)},
		{letterFirstError, clip(h.FirstErr, maxError)},
		{letterStack, clip(h.Stack, maxStack)},
		{letterFirstFailedAt, at(h.FirstFailedAt)},
		{letterLastFailedAt, at(h.LastFailedAt)},
	} {
		if text[1] != "" {
			r.Headers = append(r.Headers, waybill.Header{Key: text[0], Value: []byte(text[1])})
		}
	}
	return r
}

// DeadLetterInfo is a dead letter that was sent, or was not.
type DeadLetterInfo struct {
	Event waybill.Event
	Topic string // of the letter
	Err   error  // nil when the broker has it
	// GivenUp says that it will not be tried again.
	GivenUp bool
}

func (i DeadLetterInfo) String() string {
	switch {
	case i.GivenUp:
		return fmt.Sprintf("dead letter of %s given up: %v", i.Event.ID, i.Err)
	case i.Err != nil:
		return fmt.Sprintf("dead letter of %s not sent: %v", i.Event.ID, i.Err)
	}
	return fmt.Sprintf("dead letter of %s sent", i.Event.ID)
}
