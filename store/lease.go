package store

import (
	"context"
	"time"
)

// Lease is the right to publish one lane's events.
type Lease struct {
	Lane  int
	Fence int64 // grows each time the lane changes hands
}

// LeaseState is a lane as the table shows it.
type LeaseState struct {
	Lease
	Owner     string        // empty when free
	ExpiresIn time.Duration // <= 0 when expired
}

// RelayState is a relay process as the table shows it.
type RelayState struct {
	Owner     string
	Host      string        // "host:pid", for people
	Mode      string        // "poll" or "cdc"
	StartedAt time.Time     // by the database's clock
	ExpiresIn time.Duration // <= 0 when it stopped without leaving
	// Report is what the relay says of itself: its relay.Health in JSON.
	Report []byte
}

// Heartbeat keeps a relay and its leases alive.
type Heartbeat struct {
	Owner  string // random per process start
	Host   string
	Mode   string
	TTL    time.Duration
	Held   []Lease
	Report []byte
}

// Leases is the table of lanes and of the relays that share them. All times
// are the database's.
type Leases interface {
	// Renew makes the relay known for TTL and extends its leases by TTL. It
	// returns those that it still holds (owner and fence match and expiry has not
	// passed), and the number of live relays, this one included. Rows of relays
	// that expired an hour ago are removed.
	Renew(ctx context.Context, beat Heartbeat) (held []Lease, live int, err error)
	// Claim takes at most limit lanes that are free or expired, each with a
	// greater fence, for TTL.
	Claim(ctx context.Context, owner string, ttl time.Duration, limit int) ([]Lease, error)
	// Release frees those of the leases that the owner still holds.
	Release(ctx context.Context, owner string, leases []Lease) error
	// Leave frees all of the owner's leases and forgets the relay.
	Leave(ctx context.Context, owner string) error
	// ListLeases returns all lanes in order.
	ListLeases(ctx context.Context) ([]LeaseState, error)
	// ListRelays returns all known relays, oldest first.
	ListRelays(ctx context.Context) ([]RelayState, error)
}
