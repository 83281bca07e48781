package postgres_test

import (
	"bytes"
	"database/sql"
	"errors"
	"maps"
	"strings"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/outbox"
	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/storetest"
)

func TestSQLTransactionsAppendEveryFieldAndByte(t *testing.T) {
	for _, mode := range []string{"", "&default_query_exec_mode=simple_protocol"} {
		for _, noTrigger := range []bool{false, true} {
			dsn := usedSchema(t) + mode
			st := openStore(t, dsn, storetest.Options{NoTrigger: noTrigger})
			db, err := sql.Open("pgx", dsn)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = db.Close() }()
			full, bare := orderPaid(`it's {a} "b" \ , NULL`), orderPaid("bare")
			full.TenantID, full.Key, full.Source = `\x41`, `schlüssel 钥匙 {},"\`, `"`
			full.Headers = map[string]string{"region": `eu \ "west" ☂`, "empty": ""}
			full.AggregateVersion = 1 << 62
			full.Data = append([]byte("\x00\xff\\x00 ' \" {"), bytes.Repeat([]byte{0, 1, 2, 3}, 1000)...)
			bare.Data = nil

			tx, err := db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			writer := outbox.NewWriter(st.SQL(), nil)
			if err := writer.Append(t.Context(), tx, full, bare); err != nil {
				t.Fatal(err)
			}
			if err := writer.Append(t.Context(), tx, full); !errors.Is(err, waybill.ErrDuplicateEvent) {
				t.Errorf("second append: got %v, want a duplicate", err)
			}
			if err := writer.AppendMissing(t.Context(), tx, full, bare); err != nil {
				t.Errorf("append of what is there with the same content: %v", err)
			}
			if err := tx.Commit(); err != nil {
				t.Fatal(err)
			}
			found, err := st.Find(t.Context(), store.Filter{})
			if err != nil || len(found) != 2 {
				t.Fatalf("found %d events, %v, want 2", len(found), err)
			}
			for i, want := range []waybill.Event{full, bare} {
				got := found[i].Event
				if !found[i].Queued() {
					t.Errorf("%s has no queue row", want.ID)
				}
				if got.ID != want.ID || got.TenantID != want.TenantID || got.Key != want.EffectiveKey() || got.Source != want.Source ||
					got.AggregateVersion != want.AggregateVersion || !got.OccurredAt.Equal(want.OccurredAt) ||
					!bytes.Equal(got.Data, want.Data) || !maps.Equal(got.Headers, want.Headers) {
					t.Errorf("got  %+v\nwant %+v", got, want)
				}
			}
		}
	}
}

func TestSQLTransactionsRollBackEvents(t *testing.T) {
	dsn := usedSchema(t)
	st := openStore(t, dsn, storetest.Options{})
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := outbox.NewWriter(st.SQL(), nil).Append(t.Context(), tx, orderPaid("a")); err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if found, err := st.Find(t.Context(), store.Filter{}); err != nil || len(found) != 0 {
		t.Errorf("found %d events, %v, want none", len(found), err)
	}
}

func TestErrorsOfSQLNameTheMissingTables(t *testing.T) {
	dsn := freshSchema(t)
	st := openStore(t, dsn, storetest.Options{Bare: true})
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	_, err = st.SQL().Append(t.Context(), tx, []waybill.Event{orderPaid("a")})
	if !errors.Is(err, store.ErrNoSchema) || !strings.Contains(err.Error(), "run the migration") {
		t.Errorf("got %v, want ErrNoSchema with a hint", err)
	}
}
