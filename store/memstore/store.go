package memstore

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
)

// Config adjusts a [Store]. Its zero value, and nil, are right for most.
type Config struct {
	// Now is the database's clock. nil means time.Now.
	Now func() time.Time
	// NoTrigger makes Append write the queue row itself, and New leave out the
	// trigger.
	NoTrigger bool
	// Head makes New keep heads, and Append write them itself, with NoTrigger.
	Head bool
	// Log is told of each commit that inserted events: their ids, in order. It is
	// called before anybody can see them, and must not call the store.
	Log func(ids []int64)
	// Empty makes New leave out the tables: Migrate makes them.
	Empty bool
}

// ErrReadOnly is the error of [ReadOnly].
var ErrReadOnly = errors.New("the database is read-only")

// Store is an outbox and an inbox in memory. It may be used from several
// goroutines.
type Store struct {
	config Config

	mu      sync.Mutex // held for moments only, never while waiting
	before  func(op string) error
	after   func(op string) error
	closed  bool
	meta    store.Meta
	made    bool
	sending store.Delivery
	outbox  outboxTables
	inbox   inboxTables
	data    map[dataKey]string
	locks   map[lockKey]*rowLock
	writers map[uint64]struct{} // open transactions that inserted events
	lastTx  uint64
}

var (
	_ store.Outbox        = (*Store)(nil)
	_ store.HeadReader    = (*Store)(nil)
	_ store.External      = (*Store)(nil)
	_ store.Appender[*Tx] = (*Store)(nil)
	_ store.Consumer[*Tx] = (*Store)(nil)
	_ store.InboxTx[*Tx]  = inboxTx{}
)

// New returns an empty store, with its tables unless the config says otherwise.
func New(config *Config) *Store {
	s := &Store{
		data:    make(map[dataKey]string),
		locks:   make(map[lockKey]*rowLock),
		writers: make(map[uint64]struct{}),
	}
	if config != nil {
		s.config = *config
	}
	s.outbox.init()
	s.inbox.init()
	if !s.config.Empty {
		s.made = true
		s.meta = store.Meta{Version: store.SchemaVersion, Trigger: !s.config.NoTrigger, Outbox: true, Inbox: true, Head: s.config.Head, HeadTrigger: s.config.Head && !s.config.NoTrigger}
	}
	return s
}

// SetError makes fail ask before each operation, by its name, whether it fails
// and how: "begin", "commit", "append", "walk", "load", "apply", "renew", "claim",
// "mark consumed" and so on, the method's name in lower case words. A failed
// operation changes nothing. Rollbacks happen always. nil ends it.
func (s *Store) SetError(fail func(op string) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before = fail
}

// SetLostAnswer makes lose ask after each operation that succeeded, with the
// names of [Store.SetError], whether its answer is lost: what was done stays
// done, and the caller gets the error. nil ends it.
func (s *Store) SetLostAnswer(lose func(op string) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.after = lose
}

// ReadOnly is a function for [Store.SetError] that fails all operations that write.
func ReadOnly(op string) error {
	switch op {
	case "begin", "walk", "load", "fetch key", "fetch due", "held keys", "frontier", "list leases", "list relays", "list positions", "read mode", "counts", "find",
		"orphans", "audit", "existing", "begin inbox", "keys held", "held of key", "releasable keys", "next retry", "list held",
		"count held", "find consumed", "groups", "list readers", "read meta", "get", "effects of", "list effects", "unsent dead", "horizon",
		"delivery", "unconfirmed", "event topics":
		return nil
	}
	return ErrReadOnly
}

// call runs one operation that needs no transaction.
func (s *Store) call(ctx context.Context, op string, run func() error) error {
	err := s.allow(ctx, op)
	if err == nil {
		err = s.locked(run)
	}
	if err == nil {
		err = s.answer(op)
	}
	return failure(op, "", err)
}

func (s *Store) locked(run func() error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return run()
}

// allow reports why an operation cannot start. The hook runs without the
// mutex, since it may look at the store.
func (s *Store) allow(ctx context.Context, op string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	before, closed := s.before, s.closed
	s.mu.Unlock()
	if closed {
		return errors.New("the store is closed")
	}
	if before != nil {
		return before(op)
	}
	return nil
}

func (s *Store) answer(op string) error {
	s.mu.Lock()
	after := s.after
	s.mu.Unlock()
	if after != nil {
		return after(op)
	}
	return nil
}

func failure(op, key string, err error) error {
	if err == nil {
		return nil
	}
	return &waybill.Error{Op: op, Key: key, Err: err}
}
