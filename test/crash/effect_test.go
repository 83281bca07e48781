package crash

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/inbox"
	"github.com/waybillhq/waybill/store"
)

// Variables of a consumer that asks a coupon service for each event.
const (
	envCoupons   = "WAYBILL_CRASH_COUPONS"    // its URL; empty means none
	envHeedsKeys = "WAYBILL_CRASH_HEEDS_KEYS" // whether it takes a second call with one key for the first
)

// effects are the child's.
func effects() []inbox.Effect {
	url := os.Getenv(envCoupons)
	if url == "" {
		return nil
	}
	return []inbox.Effect{{
		Name: "coupon", Idempotent: os.Getenv(envHeedsKeys) != "",
		Call: func(ctx context.Context, key string, e waybill.Event) ([]byte, error) {
			request, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"?event="+e.ID, strings.NewReader(key))
			if err != nil {
				return nil, err
			}
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				return nil, err
			}
			defer response.Body.Close()
			return io.ReadAll(response.Body)
		},
	}}
}

// coupons is a service of another house, which lives on when a consumer dies.
type coupons struct {
	*httptest.Server
	heedsKeys bool

	mu      sync.Mutex
	hold    bool // the next call is not answered
	reached chan struct{}
	keys    map[string]bool
	granted map[string]int // by event
}

func newCoupons(t *testing.T, heedsKeys bool) *coupons {
	c := &coupons{heedsKeys: heedsKeys, keys: make(map[string]bool), granted: make(map[string]int), reached: make(chan struct{})}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key, _ := io.ReadAll(r.Body)
		event := r.URL.Query().Get("event")
		c.mu.Lock()
		if !c.heedsKeys || !c.keys[string(key)] {
			c.granted[event]++
		}
		c.keys[string(key)] = true
		hold := c.hold
		c.hold = false
		c.mu.Unlock()
		if hold {
			close(c.reached)
			<-r.Context().Done() // the caller is gone
			return
		}
		fmt.Fprintf(w, "coupon of %s", event)
	}))
	t.Cleanup(c.Close)
	return c
}

func (c *coupons) grants() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	granted := make(map[string]int, len(c.granted))
	for event, n := range c.granted {
		granted[event] = n
	}
	return granted
}

// A consumer is killed when it has committed that it calls, while the service
// works on the call, when it has the answer, and before it commits that.
func TestConsumerIsKilledInACall(t *testing.T) {
	const during = "during the call"
	for _, point := range []string{"inbox.effect_doing:2", during, "inbox.effect_called:2", "inbox.effect_done:2"} {
		for _, heedsKeys := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, keys heeded %t", point, heedsKeys), func(t *testing.T) {
				each := eachKind
				if point != "inbox.effect_called:2" { // one database is enough for the others
					each = onPostgres
				}
				each(t, func(t *testing.T, w *world) {
					c := newCoupons(t, heedsKeys)
					w.env = []string{envCoupons + "=" + c.URL}
					if heedsKeys {
						w.env = append(w.env, envHeedsKeys+"=1")
					}
					c.hold = point == during
					relay := w.start("relay", "")
					stopAt := point
					if point == during {
						stopAt = ""
					}
					first := w.start("consumer", stopAt)
					w.append(3, keys(4)...)
					if point == during {
						<-c.reached
					} else {
						first.reached()
					}
					first.kill()
					next := w.start("consumer", "")
					if heedsKeys {
						w.drained()
						w.check()
						for _, e := range w.appended {
							if n := c.grants()[e.ID]; n != 1 {
								t.Errorf("%d coupons for %s, want one", n, e.ID)
							}
						}
					} else {
						w.parked(c)
					}
					relay.stop()
					next.stop()
				})
			})
		}
	}
}

func onPostgres(t *testing.T, test func(t *testing.T, w *world)) { test(t, newWorld(t, "postgres15")) }

// parked demands that a person is asked about what is in doubt, and that nothing
// was granted twice.
func (w *world) parked(c *coupons) {
	w.t.Helper()
	var counts store.HeldCounts
	until(w.t, "every event applied or held, and some in doubt", func() bool {
		var err error
		counts, err = w.held.CountHeld(w.t.Context(), group)
		return err == nil && counts.Dead > 0 && counts.Retry == 0 &&
			w.number("SELECT count(*) FROM effect")+int(counts.Dead+counts.Blocked) == len(w.appended)
	})
	dead, err := w.held.ListHeld(w.t.Context(), group, store.HeldFilter{State: store.HeldDead})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, h := range dead {
		if !strings.HasPrefix(h.LastErr, "parked: effect coupon") || !strings.Contains(h.LastErr, group+"/"+h.Event.ID+"/coupon") {
			w.t.Errorf("%s is dead, its error %q does not name the call and its key", h.Event.ID, h.LastErr)
		}
	}
	for event, n := range c.grants() {
		if n > 1 {
			w.t.Errorf("%d coupons for %s", n, event)
		}
	}
	if n := w.number("SELECT count(*) - count(DISTINCT event_id) FROM effect"); n != 0 {
		w.t.Errorf("%d events had their effect twice", n)
	}
}
