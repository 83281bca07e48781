package postgres_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/storetest"
)

// A migration that needs a strong lock stands in line for it only briefly, so
// that the producers behind it in the line go on.
func TestMigrationLetsProducersPass(t *testing.T) {
	st := openStore(t, freshSchema(t), storetest.Options{})
	open := begin(t, st)
	appendTo(t, st, open, "open")
	done := make(chan error, 1)
	go func() { done <- st.Migrate(t.Context(), store.MigrateOptions{NoTrigger: true}) }()
	untilBlocked(t, st)
	behind := begin(t, st)
	appendTo(t, st, behind, "behind")
	commit(t, behind)
	select {
	case err := <-done:
		t.Fatalf("the migration ended beside an open transaction: %v", err)
	default:
	}
	commit(t, open)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if meta, err := st.ReadMeta(t.Context()); err != nil || meta.Trigger {
		t.Errorf("meta: got %+v, %v, want no trigger", meta, err)
	}
}

func TestMissingTablesAreNamed(t *testing.T) {
	st := openStore(t, freshSchema(t), storetest.Options{Bare: true})
	if _, err := st.Counts(t.Context()); !errors.Is(err, store.ErrNoSchema) || !strings.Contains(err.Error(), "run the migration") {
		t.Errorf("counts: got %v, want ErrNoSchema with a hint", err)
	}
	if err := st.Migrate(t.Context(), store.MigrateOptions{SkipInbox: true}); err != nil {
		t.Fatal(err)
	}
	meta, err := st.ReadMeta(t.Context())
	if want := (store.Meta{Version: store.SchemaVersion, Trigger: true, Outbox: true}); err != nil || meta != want {
		t.Errorf("meta of one side: got %+v, %v, want %+v", meta, err, want)
	}
	if _, err := st.Groups(t.Context()); !errors.Is(err, store.ErrNoSchema) {
		t.Errorf("groups: got %v, want ErrNoSchema", err)
	}
}

// Rows of another function would be looked for in the wrong lanes and keys.
func TestLanesOfAnotherFunctionAreRefused(t *testing.T) {
	st := openStore(t, freshSchema(t), storetest.Options{})
	if _, err := st.Pool().Exec(t.Context(), "UPDATE waybill_meta SET value = '0' WHERE key = 'lane_function'"); err != nil {
		t.Fatal(err)
	}
	_, err := st.ReadMeta(t.Context())
	if !errors.Is(err, store.ErrSchemaNewer) || !strings.Contains(err.Error(), `function "0"`) {
		t.Errorf("got %v, want ErrSchemaNewer that names the function", err)
	}
}
