package inbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/memstore"
)

// versioned is an event of a schema version, with data.
func versioned(key string, version int64, schema int, data string) waybill.Event {
	e := ev(key, version)
	e.SchemaVersion, e.Data = schema, []byte(data)
	return e
}

// toCents makes version 2 of version 1, and withCurrency version 3 of that.
var (
	toCents = UpcastObject(func(o map[string]json.RawMessage) error {
		if o["amount"] == nil {
			return errors.New("no amount")
		}
		o["cents"] = json.RawMessage(string(o["amount"]) + "00")
		delete(o, "amount")
		return nil
	})
	withCurrency = UpcastObject(func(o map[string]json.RawMessage) error {
		o["currency"] = json.RawMessage(`"EUR"`)
		return nil
	})
)

// keepData remembers what handlers got.
type keepData struct {
	mu   sync.Mutex
	data map[string]string
}

func (k *keepData) handle(ctx context.Context, tx *memstore.Tx, e waybill.Event) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.data == nil {
		k.data = make(map[string]string)
	}
	k.data[e.ID] = fmt.Sprintf("%d %s", e.SchemaVersion, e.Data)
	return apply(ctx, tx, e)
}

func (k *keepData) want(t *testing.T, want map[string]string) {
	t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	if !maps.Equal(k.data, want) {
		t.Errorf("handlers got %v, want %v", k.data, want)
	}
}

func TestOlderDataReachesTheHandlerInItsVersion(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		config := r.config()
		config.Schemas = map[string]Schema{"OrderChanged": {Version: 3, Upcasts: map[int]Upcast{1: toCents, 2: withCurrency}}}
		other := versioned("d", 1, 9, `{}`)
		other.Type = "Unlisted"
		r.publish(
			versioned("a", 1, 1, `{"amount":12345678901234567890,"x":[1]}`),
			versioned("b", 1, 2, `{"cents":5}`),
			versioned("c", 1, 3, `{"cents": 5, "currency": "JPY"}`),
			other,
			versioned("e", 1, 1, `{}`))
		var kept keepData
		r.start(kept.handle, config)
		r.until("lag 0", func() bool { return r.b.Lag("g", topic) == 0 })
		kept.want(t, map[string]string{
			"a/1": `3 {"cents":1234567890123456789000,"currency":"EUR","x":[1]}`,
			"b/1": `3 {"cents":5,"currency":"EUR"}`,
			"c/1": `3 {"cents": 5, "currency": "JPY"}`,
			"d/1": `9 {}`,
		})
		r.wantHeld("e/1 DEAD 1") // it can be upcast by no program
	})
}

func TestUnknownVersionIsHeldUntilAProgramKnowsIt(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		config := r.config()
		config.Schemas = map[string]Schema{"OrderChanged": {Version: 1}}
		r.publish(versioned("a", 1, 1, `{"amount":1}`), versioned("a", 2, 2, `{"cents":2}`), versioned("a", 3, 1, `{"amount":3}`), versioned("b", 1, 1, `{"amount":4}`))
		var kept keepData
		old := r.start(kept.handle, config)
		r.until("lag 0", func() bool { return r.b.Lag("g", topic) == 0 })
		r.after(2 * time.Hour) // nothing is tried meanwhile
		r.wantHeld("a/2 DEAD 0", "a/3 BLOCKED 0")
		if n := r.said("DEAD a/2"); n != 1 {
			t.Errorf("held %d times, want once: trying again cannot help", n)
		}
		held, err := r.st.ListHeld(t.Context(), "g", store.HeldFilter{EventID: "a/2"})
		if err != nil || len(held) != 1 || !strings.Contains(held[0].FirstErr, "unknown schema version: OrderChanged 2, this program understands 1") {
			t.Errorf("held %+v, %v", held, err)
		}
		old.mustStop()

		config = r.config()
		config.Schemas = map[string]Schema{"OrderChanged": {Version: 2, Upcasts: map[int]Upcast{1: toCents}}}
		r.start(kept.handle, config)
		r.until("all applied", func() bool { return r.history()["a"] == "1 2 3" })
		kept.want(t, map[string]string{"a/1": `1 {"amount":1}`, "a/2": `2 {"cents":2}`, "a/3": `2 {"cents":300}`, "b/1": `1 {"amount":4}`})
		r.wantHeld()
		audit, err := r.st.Audit(t.Context(), 10)
		if err != nil || len(audit) != 1 || audit[0].Target != "a/2" || audit[0].Verb != "held retry" {
			t.Errorf("audit %+v, %v; want the release of a/2", audit, err)
		}
	})
}

// A program that is older runs beside one that is newer, and parks what both
// are given; in the end the newer one has it all.
func TestOldAndNewProgramShareAGroup(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var kept keepData
		config := r.config()
		config.Schemas = map[string]Schema{"OrderChanged": {Version: 1}}
		old := r.start(kept.handle, config)
		config = r.config()
		config.Schemas = map[string]Schema{"OrderChanged": {Version: 2, Upcasts: map[int]Upcast{1: toCents}}}
		r.start(kept.handle, config)
		for _, key := range []string{"a", "b", "c", "d"} {
			r.publish(versioned(key, 1, 2, `{}`), versioned(key, 2, 2, `{}`))
		}
		r.after(10 * time.Minute)
		old.mustStop()
		r.until("all applied", func() bool { return len(r.history()) == 4 && len(r.held()) == 0 })
		r.wantHistory(map[string]string{"a": "1 2", "b": "1 2", "c": "1 2", "d": "1 2"})
	})
}

type validator map[string]error // by data

func (v validator) ValidateData(e *waybill.Event) error { return v[string(e.Data)] }

func TestDataIsJudgedBeforeTheHandler(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		config := r.config()
		config.Schemas = map[string]Schema{"OrderChanged": {Version: 2, Upcasts: map[int]Upcast{1: func([]byte) ([]byte, error) { return []byte(`"made"`), nil }}}}
		config.Validator = validator{
			`"bad"`:  fmt.Errorf("%w: is bad", waybill.ErrInvalidData),
			`"made"`: fmt.Errorf("%w: was made badly", waybill.ErrInvalidData),
			`"new"`:  waybill.ErrUnknownSchema,
		}
		var kept keepData
		r.start(kept.handle, config)
		for _, e := range []waybill.Event{versioned("a", 1, 2, `"bad"`), versioned("b", 1, 1, `"old"`), versioned("c", 1, 2, `"good"`), versioned("d", 1, 2, `"new"`)} {
			r.publish(e)
			r.until("lag 0", func() bool { return r.b.Lag("g", topic) == 0 })
		}
		kept.want(t, map[string]string{"c/1": `2 "good"`})
		r.wantHeld("a/1 DEAD 1", "b/1 DEAD 1", "d/1 DEAD 0")
	})
}

// An effect is given what a handler would be given, and is not called with what
// nobody understands, even where a second call could not be told from the first.
func TestEffectsAreGivenDataOfTheirVersion(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var mu sync.Mutex
		calls := make(map[string]string)
		effect := Effect{
			Name: "coupon",
			Key:  func(e waybill.Event) string { return "k" + string(e.Data) },
			Call: func(_ context.Context, key string, e waybill.Event) ([]byte, error) {
				mu.Lock()
				defer mu.Unlock()
				calls[e.ID] += fmt.Sprintf("%d %s with %s;", e.SchemaVersion, e.Data, key)
				return nil, nil
			},
		}
		config := r.config()
		config.Effects = []Effect{effect}
		config.Schemas = map[string]Schema{"OrderChanged": {Version: 2, Upcasts: map[int]Upcast{1: toCents}}}
		r.publish(versioned("a", 1, 1, `{"amount":1}`), versioned("b", 1, 3, `{"new":1}`))
		old := r.start(apply, config)
		r.until("lag 0", func() bool { return r.b.Lag("g", topic) == 0 })
		r.after(time.Hour)
		r.wantHeld("b/1 DEAD 0")
		old.mustStop()

		config = r.config()
		config.Effects = []Effect{effect}
		config.Schemas = map[string]Schema{"OrderChanged": {Version: 3, Upcasts: map[int]Upcast{1: toCents, 2: withCurrency}}}
		r.start(apply, config)
		r.until("all applied", func() bool { return len(r.held()) == 0 && len(r.history()) == 2 })
		mu.Lock()
		defer mu.Unlock()
		want := map[string]string{"a/1": `2 {"cents":100} with k{"cents":100};`, "b/1": `3 {"new":1} with k{"new":1};`}
		if !maps.Equal(calls, want) {
			t.Errorf("calls %v, want %v", calls, want)
		}
	})
}

func TestSchemasAreChecked(t *testing.T) {
	for name, schema := range map[string]Schema{
		"no version":      {},
		"upcast too high": {Version: 2, Upcasts: map[int]Upcast{2: toCents}},
		"upcast from 0":   {Version: 2, Upcasts: map[int]Upcast{0: toCents}},
		"no upcast":       {Version: 2, Upcasts: map[int]Upcast{1: nil}},
	} {
		c := Config{Group: "g", Topics: []string{topic}, Schemas: map[string]Schema{"T": schema}}.withDefaults()
		if err := c.check(); err == nil || !strings.Contains(err.Error(), "schema of T") {
			t.Errorf("%s: %v, want it refused", name, err)
		}
	}
}

// memory is a prefilter that may be wrong in every way.
type memory struct {
	mu    sync.Mutex
	ids   map[string]bool
	fail  error
	asked int
}

func (m *memory) Seen(_ context.Context, group string, ids []string) ([]bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked += len(ids)
	seen := make([]bool, len(ids))
	for i, id := range ids {
		seen[i] = m.ids[group+"/"+id]
	}
	return seen, m.fail
}

func (m *memory) Remember(_ context.Context, group string, ids []string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, id := range ids {
		m.ids[group+"/"+id] = true
	}
	return m.fail
}

func (m *memory) remembered() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.ids))
}

func TestPrefilterIsNotBelieved(t *testing.T) {
	for _, fail := range []error{nil, errBoom} {
		t.Run(fmt.Sprint(fail), func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				// It remembers an event whose transaction was never committed.
				filter := &memory{ids: map[string]bool{"g/a/1": true}, fail: fail}
				config := r.config()
				config.Prefilter = filter
				r.start(apply, config)
				r.publish(ev("a", 1), ev("a", 2), ev("b", 1))
				r.until("all applied", func() bool { return r.said("APPLIED") == 3 })
				r.until("remembered", func() bool { return len(filter.remembered()) == 3 })
				r.publish(ev("a", 1), ev("b", 1))
				r.until("duplicates", func() bool { return r.said("duplicate") == 2 })
				r.wantHistory(map[string]string{"a": "1 2", "b": "1"})
				r.until("lag 0", func() bool { return r.b.Lag("g", topic) == 0 })
				// What it knew rightly cost no write.
				rows, _ := r.st.FindConsumed(t.Context(), "a/1")
				if want := int64(map[bool]int{true: 0, false: 1}[fail == nil]); len(rows) != 1 || rows[0].Duplicates != want {
					t.Errorf("consumed %+v, want %d duplicates counted", rows, want)
				}
			})
		})
	}
}
