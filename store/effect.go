package store

import (
	"context"
	"time"
)

// EffectState says how far a call to another system has come.
type EffectState string

// The states of a call. What is not known to be done is DOING; whether somebody
// is still at it, the lease says.
const (
	EffectDoing EffectState = "DOING"
	EffectDone  EffectState = "DONE"
)

// MaxEffectName bounds an effect's name, in bytes.
const MaxEffectName = 64

// EffectRef names one call of one event.
type EffectRef struct {
	EventID string
	Name    string
}

// EffectCall is a row of effect_call: one call, for one event of one group, to a
// system that is not in the consumer's database.
type EffectCall struct {
	Group string
	EffectRef
	Key        string // the idempotency key that the other side was given
	Idempotent bool   // whether the other side takes a second call with that key for the first
	State      EffectState
	Owner      string        // random per process start
	ExpiresIn  time.Duration // of the owner's lease, when read; <= 0 when expired
	Tries      int           // how often it was begun
	Result     []byte        // the other side's answer, when DONE
	StartedAt  time.Time     // when read
}

// EffectTx writes effect_call. The caller has locked the event's key, by which
// all writers but a renewal exclude each other.
type EffectTx interface {
	// EffectsOf returns the event's calls, by name.
	EffectsOf(ctx context.Context, group, eventID string) ([]EffectCall, error)
	// BeginEffect writes that the call is DOING by call.Owner for ttl. A row that
	// exists is taken over, whoever's it is: Key stays the first one's and Tries
	// grows by one. It returns the row; one that is DONE is returned unchanged.
	BeginEffect(ctx context.Context, call EffectCall, ttl time.Duration) (EffectCall, error)
	// FinishEffect makes the call DONE with call.Result, if it is DOING and
	// call.Owner's, expired or not. It reports whether it was.
	FinishEffect(ctx context.Context, call EffectCall) (bool, error)
	// ForgetEffect removes a call that is DOING and reports whether there was one.
	ForgetEffect(ctx context.Context, group string, ref EffectRef) (bool, error)
}

// Effects is effect_call outside of the consumer's transactions.
type Effects interface {
	// RenewEffects extends the leases of those of the calls that are DOING and
	// the owner's, and returns these. A ttl of 0 ends the leases.
	RenewEffects(ctx context.Context, group, owner string, ttl time.Duration, calls []EffectRef) ([]EffectRef, error)
	// ListEffects returns the calls of an event, by name.
	ListEffects(ctx context.Context, group, eventID string) ([]EffectCall, error)
}
