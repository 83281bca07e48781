package storetest

import (
	"errors"
	"sync"
	"testing"

	"github.com/waybillhq/waybill/store"
)

func schemaCases[TX any]() []testCase[TX] {
	return []testCase[TX]{
		{"an empty database has no schema", schemaBare[TX]},
		{"migrate may be repeated", schemaRepeated[TX]},
		{"several processes may migrate at once", schemaConcurrent[TX]},
		{"one side can be left out", schemaOneSide[TX]},
		{"the trigger comes and goes", schemaTrigger[TX]},
		{"tables of a newer release are refused", schemaNewer[TX]},
		{"any name will do", schemaNames[TX]},
		{"any schema will do", schemaSchema[TX]},
		{"the statements can be printed", schemaPrinted[TX]},
		{"a ping is answered", schemaPing[TX]},
	}
}

func (s *suite[TX]) migrateOptions() store.MigrateOptions {
	return store.MigrateOptions{NoTrigger: s.options.NoTrigger}
}

func (s *suite[TX]) migrate(t testing.TB, options store.MigrateOptions) {
	t.Helper()
	if err := s.Outbox.Migrate(t.Context(), options); err != nil {
		t.Fatalf("migrate: %v", err)
	}
}

func (s *suite[TX]) wantMeta(t testing.TB, want store.Meta) {
	t.Helper()
	if got, err := s.Outbox.ReadMeta(t.Context()); err != nil || got != want {
		t.Errorf("meta: got %+v, %v, want %+v", got, err, want)
	}
}

func (s *suite[TX]) wholeMeta() store.Meta {
	return store.Meta{Version: store.SchemaVersion, Trigger: !s.options.NoTrigger, Outbox: true, Inbox: true}
}

// works requires an event to go all the way.
func (s *suite[TX]) works(t *testing.T) {
	t.Helper()
	e := s.event("a")
	s.append(t, e)
	plain := s.plain("a")
	s.exec(t, Statement{Event: plain})
	s.queueAll(t)
	rows := s.wantHot(t, e.ID, plain.ID)
	guard := s.own(t)
	s.apply(t, guard, settled(rows[e.ID]))
	s.apply(t, guard, failed(rows[plain.ID], true, 0, "x"))
	if _, err := s.Outbox.SkipDead(t.Context(), because, []string{plain.ID}); err != nil {
		t.Fatal(err)
	}
	if due, err := s.Outbox.FetchDue(t.Context(), allLanes(), 10); err != nil || len(due) != 1 {
		t.Errorf("due: got %v, %v, want one", due, err)
	}
	if held, err := s.Outbox.HeldKeys(t.Context(), allLanes()); err != nil || len(held) != 1 {
		t.Errorf("held keys: got %v, %v, want one", held, err)
	}
	if counts, err := s.Outbox.Counts(t.Context()); err != nil || counts.Dead != 1 {
		t.Errorf("counts: got %+v, %v, want one dead", counts, err)
	}
	s.frontier(t)
	s.renew(t, owner, 0)
	if n := s.cleanup(t, store.CleanupRequest{Archive: true}); n != 1 {
		t.Errorf("cleanup: got %d, want 1", n)
	}
	if !s.tracked(t, e.ID).Archived {
		t.Error("the event is not in the archive")
	}
	s.consume(t, delivered("1"))
	s.hold(t, kept("2", "k", store.HeldBlocked))
	s.inInbox(t, func(tx store.InboxTx[TX]) {
		if err := tx.LockKey(t.Context(), group, store.HeldKeyRef{Topic: "orders", Key: "k"}); err != nil {
			t.Fatal(err)
		}
	})
	if keys, err := s.Consumer.ReleasableKeys(t.Context(), group, true, 10); err != nil || len(keys) != 1 {
		t.Errorf("releasable keys: got %v, %v, want one", keys, err)
	}
	s.finishEffect(t, s.beginEffect(t, coupon("2", "me"), 0))
	s.horizon(t)
	s.mustClaim(t, partition(0), "a", 0)
	if _, _, err := s.Consumer.RenewReaders(t.Context(), group, "a", 0); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Consumer.CleanupConsumed(t.Context(), group, 0, 10); err != nil {
		t.Fatal(err)
	}
}

func schemaBare[TX any](t *testing.T, s *suite[TX]) {
	s.openWith(t, Options{Bare: true})
	if _, err := s.Outbox.ReadMeta(t.Context()); !errors.Is(err, store.ErrNoSchema) {
		t.Errorf("meta: got error %v, want ErrNoSchema", err)
	}
	if _, err := s.Outbox.Walk(t.Context(), store.WalkRequest{Lanes: allCursors(), Limit: 1}); err == nil {
		t.Error("a walk without tables succeeded")
	}
	if _, err := s.Outbox.Load(t.Context(), []int64{1}, 0); err == nil {
		t.Error("a load without tables succeeded")
	}
}

func schemaRepeated[TX any](t *testing.T, s *suite[TX]) {
	s.openWith(t, Options{Bare: true})
	s.migrate(t, s.migrateOptions())
	s.wantMeta(t, s.wholeMeta())
	e := s.event("kept")
	s.append(t, e)
	s.claim(t, "somebody", 0, 1)
	fence := s.lane(t, 0).Fence
	s.migrate(t, s.migrateOptions())
	s.migrate(t, s.migrateOptions())
	s.wantMeta(t, s.wholeMeta())
	s.wantHot(t, e.ID)
	if got := s.lane(t, 0).Fence; got != fence {
		t.Errorf("the fence of lane 0 became %d, was %d", got, fence)
	}
	s.apply(t, s.own(t), settled(s.row(t, e.ID)))
	if n := s.cleanup(t, store.CleanupRequest{}); n != 1 {
		t.Errorf("cleanup: got %d, want 1", n)
	}
	s.works(t)
}

func schemaConcurrent[TX any](t *testing.T, s *suite[TX]) {
	s.openWith(t, Options{Bare: true})
	errs := make([]error, 4)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() { errs[i] = s.Outbox.Migrate(t.Context(), s.migrateOptions()) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatalf("migrate: %v", err)
	}
	s.wantMeta(t, s.wholeMeta())
	s.works(t)
}

func schemaOneSide[TX any](t *testing.T, s *suite[TX]) {
	s.openWith(t, Options{Bare: true})
	options := s.migrateOptions()
	options.SkipInbox = true
	s.migrate(t, options)
	meta := s.wholeMeta()
	meta.Inbox = false
	s.wantMeta(t, meta)
	e := s.event("a")
	s.append(t, e)
	s.wantHot(t, e.ID)

	s.openWith(t, Options{Bare: true})
	options.SkipInbox, options.SkipOutbox = false, true
	s.migrate(t, options)
	s.wantMeta(t, store.Meta{Version: store.SchemaVersion, Inbox: true})
	s.consume(t, delivered("1"))
	s.wantConsumed(t, true, "1")

	s.migrate(t, s.migrateOptions()) // the other side comes later
	s.wantMeta(t, s.wholeMeta())
	s.wantConsumed(t, true, "1")
	s.works(t)
}

func schemaTrigger[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	for _, noTrigger := range []bool{!s.options.NoTrigger, s.options.NoTrigger, !s.options.NoTrigger} {
		s.migrate(t, store.MigrateOptions{NoTrigger: noTrigger})
		meta := s.wholeMeta()
		meta.Trigger = !noTrigger
		s.wantMeta(t, meta)
		plain := s.plain("a")
		s.exec(t, Statement{Event: plain})
		if found := s.tracked(t, plain.ID); found.Queued() == noTrigger {
			t.Errorf("no trigger %t: a plain insert is queued %t", noTrigger, found.Queued())
		}
	}
}

func schemaNewer[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	if err := s.SetSchemaVersion(t.Context(), store.SchemaVersion+1); err != nil {
		t.Fatal(err)
	}
	meta, err := s.Outbox.ReadMeta(t.Context())
	if !errors.Is(err, store.ErrSchemaNewer) || meta.Version != store.SchemaVersion+1 {
		t.Errorf("meta: got %+v, %v, want the version and ErrSchemaNewer", meta, err)
	}
	if err := s.Outbox.Migrate(t.Context(), s.migrateOptions()); !errors.Is(err, store.ErrSchemaNewer) {
		t.Errorf("migrate: got error %v, want ErrSchemaNewer", err)
	}
	if meta, _ := s.Outbox.ReadMeta(t.Context()); meta.Version != store.SchemaVersion+1 {
		t.Errorf("migrate set the version back to %d", meta.Version)
	}
}

func oddNames() store.Names {
	return store.Names{
		Event: "Order", Pending: "outbox pending", Receipt: `it's "sent"`, Archive: "archive-1", Status: "Status", Lease: "select",
		Relay: "relay.relay", Meta: "WAYBILL META", Audit: "Audit-Ü", Consumed: "consumed`", Key: "group", Progress: "progress;",
		Held: "held--held", Reader: "user", Member: "Member", Effect: "effect/call", Horizon: "horizon's",
	}
}

func schemaNames[TX any](t *testing.T, s *suite[TX]) {
	if why := s.harness.Exceptions.Names; why != "" {
		t.Skipf("needs names of one's own: %s", why)
	}
	s.openWith(t, Options{Names: oddNames()})
	s.works(t)
	s.migrate(t, s.migrateOptions())
	s.wantMeta(t, s.wholeMeta())
}

func schemaSchema[TX any](t *testing.T, s *suite[TX]) {
	if why := s.harness.Exceptions.Schemas; why != "" {
		t.Skipf("needs a schema of its own: %s", why)
	}
	s.openWith(t, Options{Names: store.Names{Schema: "Sales-EU", Event: "Order"}})
	s.works(t)
	s.migrate(t, s.migrateOptions())
	s.wantMeta(t, s.wholeMeta())
}

func schemaPrinted[TX any](t *testing.T, s *suite[TX]) {
	s.openWith(t, Options{Bare: true})
	if s.Outbox.MigrateSQL(s.migrateOptions()) == "" {
		t.Error("no statements")
	}
	if _, err := s.Outbox.ReadMeta(t.Context()); !errors.Is(err, store.ErrNoSchema) {
		t.Errorf("printing made tables: %v", err)
	}
}

func schemaPing[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	if err := s.Outbox.Ping(t.Context()); err != nil {
		t.Errorf("ping: %v", err)
	}
	if err := s.Consumer.Ping(t.Context()); err != nil {
		t.Errorf("the consumer's ping: %v", err)
	}
}
