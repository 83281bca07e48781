package relay

import (
	"context"
	"errors"
	"sync"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
	"github.com/waybillhq/waybill/store"
)

// Store is what a relay needs of a database.
type Store interface {
	store.Schema
	store.Queue
	store.Leases
	store.Positions
}

// Relay moves events from one outbox to one broker. Make it with [New], then
// call [Relay.Run], once.
type Relay struct {
	store     Store
	publisher broker.Publisher
	config    Config
	owner     string
	wake      chan struct{}

	mu     sync.Mutex
	health Health
}

// New returns a relay. It refuses a config that contradicts itself; it does not
// ask the database or the broker anything yet.
func New(st Store, publisher broker.Publisher, config *Config) (*Relay, error) {
	full, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Relay{
		store:     st,
		publisher: stoppable(publisher),
		config:    full,
		owner:     waybill.NewID(),
		wake:      make(chan struct{}, 1),
		health:    Health{State: Red, Reasons: []Reason{{Name: "starting", Text: "the relay has not claimed a lane yet"}}},
	}, nil
}

// Owner returns the name under which this relay holds leases: random per New.
func (r *Relay) Owner() string { return r.owner }

// Wake makes the relay look at the queue now: an in-process producer may call
// it after a commit. It never blocks.
func (r *Relay) Wake() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Run relays until ctx ends, and then drains: it stops reading and sending,
// waits for what the broker still owes and writes it down, releases its lanes
// and returns nil. Where that takes longer than Config.Grace it returns an error
// that says how much was left; nothing is lost by it, some events will be sent
// again.
//
// Run returns an error at once when the outbox cannot be used: its tables are
// missing or of another version, or the database does not answer. Once it runs
// it survives outages of both sides by itself.
func (r *Relay) Run(ctx context.Context) error {
	meta, err := r.store.ReadMeta(ctx)
	if err != nil {
		return err
	}
	if !meta.Outbox {
		return &waybill.Error{Op: "start relay", Err: store.ErrNoSchema, Hint: "run the migration with the outbox tables"}
	}
	err = newScheduler(r).run(ctx)
	r.setHealth(Health{State: Red, Reasons: []Reason{{Name: "stopped", Text: "the relay has stopped"}}})
	return err
}

// ErrGrace is wrapped by Run's error when the drain was cut short.
var ErrGrace = errors.New("stopped before everything in flight was settled")
