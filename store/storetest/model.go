package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
)

// RunModel drives two stores with the same random operations and requires the
// same answers of both, so that what the suite does not think of is compared at
// least. The first is usually [Memory]. A failure prints the seed and the last
// operations; the same seed repeats them.
//
// Ids are compared by the order they have, times by whether they have passed,
// and lanes and hashes not at all.
func RunModel[R, S any](t *testing.T, reference Harness[R], subject Harness[S], seed uint64, steps int) {
	t.Helper()
	m := &model{
		random:    rand.New(rand.NewPCG(seed, 0)),
		seed:      seed,
		reference: newSide(t, reference),
		subject:   newSide(t, subject),
		twoWrite:  reference.Exceptions.SingleWriter == "" && subject.Exceptions.SingleWriter == "" && subject.Exceptions.Reuse == "",
	}
	weights := 0
	for _, step := range modelSteps {
		weights += step.weight
	}
	for range steps {
		at := m.random.IntN(weights)
		for _, step := range modelSteps {
			if at -= step.weight; at < 0 {
				step.run(t, m)
				break
			}
		}
	}
	m.closeSlots(t)
	compareOutbox(t, m)
	compareHeld(t, m)
}

// model is the state of one run: what may be named in the next operation, and
// what was done so far.
type model struct {
	random             *rand.Rand
	seed               uint64
	reference, subject side
	twoWrite           bool

	made  []waybill.Event // all events ever appended, committed or not
	slots [2][]string     // ids that the open transactions insert: another insert of one would wait
	log   []string
}

// side is one store of the two, without its transaction's type.
type side interface {
	outbox() store.Outbox
	consumer() consumerSide
	beginInbox(ctx context.Context) (inboxSide, error)
	// append appends in the open transaction of a slot, or in one of its own.
	append(ctx context.Context, slot int, events []waybill.Event) ([]error, error)
	// end commits or rolls back the open transaction of a slot.
	end(ctx context.Context, slot int, commit bool) error
	// row returns the number that the store gave to an event.
	row(ctx context.Context, eventID string) (int64, error)
	// leases are the lanes that this run owns.
	leases() *store.Guard
}

type consumerSide interface {
	store.HeldReader
	store.Readers
}

type inboxSide interface {
	store.TxControl
	store.ConsumedTx
	store.HeldTx
}

const ownTransaction = -1

type modelSide[TX any] struct {
	*Subject[TX]
	open  map[int]TX
	rows  map[string]int64
	guard store.Guard
}

func newSide[TX any](t *testing.T, h Harness[TX]) side {
	t.Helper()
	m := &modelSide[TX]{Subject: h.Open(t, Options{}), open: make(map[int]TX), rows: make(map[string]int64)}
	t.Cleanup(func() {
		for _, tx := range m.open {
			_ = m.Rollback(context.WithoutCancel(t.Context()), tx)
		}
	})
	return m
}

func (m *modelSide[TX]) outbox() store.Outbox   { return m.Outbox }
func (m *modelSide[TX]) consumer() consumerSide { return m.Consumer }
func (m *modelSide[TX]) leases() *store.Guard   { return &m.guard }

func (m *modelSide[TX]) beginInbox(ctx context.Context) (inboxSide, error) {
	return m.Consumer.BeginInbox(ctx)
}

func (m *modelSide[TX]) append(ctx context.Context, slot int, events []waybill.Event) ([]error, error) {
	tx, isOpen := m.open[slot]
	if !isOpen {
		var err error
		if tx, err = m.Begin(context.WithoutCancel(ctx)); err != nil {
			return nil, err
		}
		m.open[slot] = tx
	}
	results, err := m.Appender.Append(ctx, tx, events)
	if slot == ownTransaction || err != nil {
		err = errors.Join(err, m.end(ctx, slot, err == nil))
	}
	return results, err
}

func (m *modelSide[TX]) end(ctx context.Context, slot int, commit bool) error {
	tx, isOpen := m.open[slot]
	if !isOpen {
		return nil
	}
	delete(m.open, slot)
	if commit {
		return m.Commit(ctx, tx)
	}
	return m.Rollback(ctx, tx)
}

func (m *modelSide[TX]) row(ctx context.Context, eventID string) (int64, error) {
	found, err := m.Outbox.Find(ctx, store.Filter{EventIDs: []string{eventID}})
	if err != nil {
		return 0, err
	}
	if len(found) == 1 {
		m.rows[eventID] = found[0].ID
	}
	return m.rows[eventID], nil
}

// both runs one operation on both sides and compares what it says.
func (m *model) both(t *testing.T, name string, do func(s side) (string, error)) {
	t.Helper()
	m.log = append(m.log, name)
	want, err := do(m.reference)
	if err != nil {
		m.fail(t, "the reference failed: %v", err)
	}
	got, err := do(m.subject)
	if err != nil {
		m.fail(t, "the subject failed: %v", err)
	}
	if got != want {
		m.fail(t, "the answers differ\n%s", difference(got, want))
	}
}

// difference returns the first lines that are not the same.
func difference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for len(g) > 0 && len(w) > 0 && g[0] == w[0] {
		g, w = g[1:], w[1:]
	}
	first := func(lines []string) string {
		if len(lines) == 0 {
			return "(no more lines)"
		}
		return lines[0]
	}
	return "subject:   " + first(g) + "\nreference: " + first(w)
}

func (m *model) fail(t *testing.T, format string, args ...any) {
	t.Helper()
	last := m.log[max(0, len(m.log)-25):]
	t.Fatalf("seed %d, operation %d: %s\n%s", m.seed, len(m.log), fmt.Sprintf(format, args...), strings.Join(last, "\n"))
}

// chance is true n times in a hundred.
func (m *model) chance(n int) bool { return m.random.IntN(100) < n }

func pick[T any](m *model, from ...T) T { return from[m.random.IntN(len(from))] }

// someIDs names a few events, seldom one that does not exist.
func (m *model) someIDs(limit int) []string {
	var ids []string
	for range 1 + m.random.IntN(limit) {
		switch {
		case len(m.made) == 0 || m.chance(5):
			ids = append(ids, fmt.Sprintf("missing-%d", m.random.IntN(3)))
		default:
			ids = append(ids, m.recent().ID)
		}
	}
	return unique(ids)
}

// recent prefers late events: the early ones are settled for long.
func (m *model) recent() waybill.Event {
	n := len(m.made)
	if m.chance(70) {
		return m.made[n-1-m.random.IntN(min(n, 30))]
	}
	return m.made[m.random.IntN(n)]
}

func unique(ids []string) []string {
	seen := make(map[string]bool)
	var kept []string
	for _, id := range ids {
		if !seen[id] {
			seen[id] = true
			kept = append(kept, id)
		}
	}
	return kept
}
