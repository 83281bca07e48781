package kafka

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	// patienceWithoutConnection is how long a call waits for a lost connection
	// before it takes its records back.
	patienceWithoutConnection = 500 * time.Millisecond
	// senderIdle is how long a sender may rest. It must be far less than the day
	// after which a broker forgets a producer: it would then take a batch whose
	// predecessor it has refused.
	senderIdle = 10 * time.Minute
)

// sender is an idempotent producer that serves one call at a time. It holds back
// what it is given until flush, so a call's records of one partition make one
// batch, or several in sequence of which none is taken once one was refused.
type sender struct {
	client *kgo.Client
	rested time.Time // since
	age    int       // of the senders when it was made
	// produced counts the produce requests of which a byte was written.
	produced atomic.Int64
	closed   bool
}

// OnBrokerWrite implements [kgo.HookBrokerWrite].
func (s *sender) OnBrokerWrite(_ kgo.BrokerMetadata, key int16, written int, _, _ time.Duration, _ error) {
	if key == keyProduce && written > 0 {
		s.produced.Add(1)
	}
}

// send returns an answer for each record. After an error of its own the sender is
// closed, and nothing that it was given will be sent any more.
func (s *sender) send(ctx context.Context, b *Broker, records []*kgo.Record) (answers []error, err error) {
	answers = make([]error, len(records))
	var all sync.WaitGroup
	for i, r := range records {
		all.Add(1)
		s.client.Produce(context.Background(), r, func(_ *kgo.Record, err error) {
			answers[i] = err
			all.Done()
		})
	}
	if err = s.flush(ctx, b); err != nil {
		s.close() // which answers all that has none
	}
	all.Wait()
	return answers, err
}

// flush waits for answers to all records, but not for longer than a moment while
// no broker can be reached.
func (s *sender) flush(ctx context.Context, b *Broker) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	flushed := make(chan error, 1)
	go func() { flushed <- s.client.Flush(ctx) }()
	lost := b.link.loss()
	patience := time.NewTimer(0)
	defer patience.Stop()
	<-patience.C
	var trouble error
	for {
		select {
		case err := <-flushed:
			if trouble != nil && err != nil {
				return lostConnection{trouble}
			}
			return err
		case <-lost:
			lost = nil
			patience.Reset(patienceWithoutConnection)
		case <-patience.C:
			if trouble = b.probe(ctx); trouble != nil {
				stop()
			} else {
				lost = b.link.loss()
			}
		}
	}
}

// lostConnection says that a call ended because no broker can be reached.
type lostConnection struct{ error }

func (e lostConnection) Unwrap() error { return e.error }

func (s *sender) close() {
	s.closed = true
	s.client.Close()
}

// senders are those that rest.
type senders struct {
	broker *Broker

	mu      sync.Mutex
	resting []*sender
	closed  bool
	age     int // older ones are not used any more
}

// take returns a sender that nobody else uses.
func (p *senders) take() (*sender, error) {
	p.mu.Lock()
	var old []*sender
	var taken *sender
	for n := len(p.resting); n > 0 && taken == nil; n = len(p.resting) {
		last := p.resting[n-1]
		p.resting = p.resting[:n-1]
		if now().Sub(last.rested) < senderIdle {
			taken = last
		} else {
			old = append(old, last)
		}
	}
	closed, age := p.closed, p.age
	p.mu.Unlock()
	for _, s := range old {
		s.close()
	}
	switch {
	case closed:
		return nil, kgo.ErrClientClosed
	case taken != nil:
		return taken, nil
	}
	s := &sender{age: age}
	var err error
	s.client, err = kgo.NewClient(append(p.broker.producerOptions(), kgo.WithHooks(p.broker.link, s))...)
	return s, err
}

// put lets a sender rest, if it can be used again.
func (p *senders) put(s *sender) {
	if s.closed {
		return
	}
	p.mu.Lock()
	useless := p.closed || s.age != p.age
	if !useless {
		s.rested = now()
		p.resting = append(p.resting, s)
	}
	p.mu.Unlock()
	if useless {
		s.close()
	}
}

// renew gives up all senders, because of what they know of a topic. They must
// not just forget the topic: with it they would forget the numbers of their
// batches, and the broker takes a batch with a number that it knows for a
// duplicate, which it confirms and does not store.
func (p *senders) renew() {
	p.mu.Lock()
	p.age++
	resting := p.resting
	p.resting = nil
	p.mu.Unlock()
	for _, s := range resting {
		s.close()
	}
}

func (p *senders) close() {
	p.mu.Lock()
	p.closed = true
	resting := p.resting
	p.resting = nil
	p.mu.Unlock()
	for _, s := range resting {
		s.close()
	}
}
