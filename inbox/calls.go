package inbox

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
)

// calls are the calls to other systems that this process has begun and not yet
// committed the end of. Their leases are kept alive here.
type calls struct {
	st    store.Effects
	group string
	owner string
	ttl   time.Duration

	mu   sync.Mutex
	live map[store.EffectRef]*liveCall
}

type liveCall struct {
	until time.Time // by this process's clock, from before the last renewal was sent
	lost  bool      // a renewal said that it is another's
}

func newCalls(st store.Effects, c *Config) *calls {
	return &calls{st: st, group: c.Group, owner: waybill.NewID(), ttl: c.ReaderTTL, live: make(map[store.EffectRef]*liveCall)}
}

func (c *calls) begin(ref store.EffectRef) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.live[ref] = &liveCall{until: now().Add(c.ttl)}
}

func (c *calls) end(ref store.EffectRef) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.live, ref)
}

func (c *calls) isLive(ref store.EffectRef) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.live[ref] != nil
}

// mayBeLost reports whether another process may have taken the call for dead.
func (c *calls) mayBeLost(ref store.EffectRef) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	call := c.live[ref]
	return call == nil || call.lost || !now().Before(call.until)
}

// keep renews the leases until ctx ends.
func (c *calls) keep(ctx context.Context, report func(error)) {
	for pauseFor(ctx, c.ttl*3/10) {
		err := c.renew(ctx)
		if ctx.Err() == nil {
			report(err)
		}
	}
}

func (c *calls) renew(ctx context.Context) error {
	c.mu.Lock()
	refs := slices.Collect(maps.Keys(c.live))
	c.mu.Unlock()
	if len(refs) == 0 {
		return nil
	}
	sent := now()
	held, err := c.st.RenewEffects(ctx, c.group, c.owner, c.ttl, refs)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, ref := range refs {
		call := c.live[ref]
		switch {
		case call == nil:
		case slices.Contains(held, ref):
			call.until = sent.Add(c.ttl)
		default:
			call.lost = true
		}
	}
	return nil
}
