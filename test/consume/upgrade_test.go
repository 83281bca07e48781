package consume

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync/atomic"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/ops"
	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/test/lab"
)

// backToOne takes away what version 2 added to a consumer's tables.
var backToOne = []string{
	"DROP TABLE effect_call",
	"DROP TABLE consumer_horizon",
	"ALTER TABLE held_event DROP COLUMN forced",
	"ALTER TABLE held_event DROP COLUMN dlt_note",
	// The name of the column "key" is quoted in as many ways as there are databases.
	fmt.Sprintf("UPDATE waybill_meta SET value = '1' WHERE value = '%d'", store.SchemaVersion),
}

// upgrade has a consumer fill tables of version 1, which are then migrated: what
// was consumed stays consumed, and what was held can be decided about, by what the
// new version knows.
func (s *scene[TX]) upgrade() {
	var mended atomic.Bool
	s.handler = func(_ context.Context, _ TX, e waybill.Event) error {
		if e.AggregateID == "bad" && !mended.Load() {
			return errBoom
		}
		return nil
	}
	s.publish("k", 1, 3)
	s.publish("bad", 1, 2)
	stop := s.start()
	s.effects(3)
	lab.Until(s.t, patience, "one DEAD and one BLOCKED", func() bool { return s.held() == (store.HeldCounts{Dead: 1, Blocked: 1}) })
	stop()
	before := s.heldRows()

	for _, statement := range backToOne {
		if err := s.bench.alter(s.t.Context(), statement); err != nil {
			s.t.Fatalf("%s: %v", statement, err)
		}
	}
	if _, err := s.bench.st.ReadMeta(s.t.Context()); !errors.Is(err, store.ErrSchemaOlder) {
		s.t.Fatalf("tables of version 1: %v, want ErrSchemaOlder", err)
	}
	for range 2 { // again changes nothing
		migrate(s.t, s.bench.st)
	}
	meta, err := s.bench.st.ReadMeta(s.t.Context())
	if err != nil || meta.Version != store.SchemaVersion {
		s.t.Fatalf("after the migration: %+v, %v", meta, err)
	}
	if after := s.heldRows(); !reflect.DeepEqual(after, before) {
		s.t.Errorf("held before and after:\n%+v\n%+v", before, after)
	}

	if err := s.bench.st.NoteDeadLetter(s.t.Context(), before[0], "no topic"); err != nil {
		s.t.Fatal(err)
	}
	view, _, err := ops.ShowHeld(s.t.Context(), s.bench.st, group, "bad/1", false)
	if err != nil || view.DeadLetterNote != "no topic" {
		s.t.Errorf("got %+v, %v", view, err)
	}
	mended.Store(true)
	results, err := ops.NewHeld(s.bench.st).Force(s.t.Context(), store.Action{Actor: "anna", Reason: "mended"}, group, "bad/1")
	if err != nil || results[0].Outcome != store.OutcomeRetried {
		s.t.Fatalf("retry: %v, %v", results, err)
	}
	s.publish("k", 3, 4) // the third was consumed before
	s.start()
	s.effects(6)
	s.inOrder("k", 1, 4)
	s.inOrder("bad", 1, 2)
	lab.Until(s.t, patience, "nothing held", func() bool { return s.held() == (store.HeldCounts{}) })
}

// heldRows returns what is held, without what grows with time.
func (s *scene[TX]) heldRows() []store.Held {
	s.t.Helper()
	held, err := s.bench.st.ListHeld(s.t.Context(), group, store.HeldFilter{})
	if err != nil {
		s.t.Fatal(err)
	}
	for i := range held {
		held[i].HeldFor, held[i].RetryIn = 0, 0
	}
	return held
}
