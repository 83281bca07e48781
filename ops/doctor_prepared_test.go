package ops

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/memstore"
)

// coordinated is a database with prepared transactions, one list for each look.
type coordinated struct {
	*memstore.Store
	looks [][]store.PreparedTransaction
}

func (c *coordinated) ListPrepared(context.Context) ([]store.PreparedTransaction, error) {
	found := c.looks[0]
	c.looks = c.looks[1:]
	return slices.Clone(found), nil
}

func TestDoctorNamesPreparedTransactionsThatWereLeft(t *testing.T) {
	named := func(name string) store.PreparedTransaction {
		return store.PreparedTransaction{Name: name, Commit: "XA COMMIT " + name, Rollback: "XA ROLLBACK " + name}
	}
	type list = []store.PreparedTransaction
	for _, c := range []struct {
		name         string
		looks        []list
		ok           bool
		detail, hint string
		limit        int
		without      string // neither detail nor hint has it
	}{
		{name: "none", looks: []list{nil}, ok: true, detail: "none was left"},
		{name: "ended by itself", looks: []list{{named("'a'")}, {named("'b'")}}, ok: true, detail: "none was left"},
		{
			name: "left", looks: []list{{named("'a'"), named("'b'")}, {named("'b'"), named("'c'")}},
			detail: "1 transaction is left", hint: "XA COMMIT 'b'; or XA ROLLBACK 'b';",
		},
		{name: "two", looks: []list{{named("'a'"), named("'b'")}, {named("'a'"), named("'b'")}}, detail: ": 'a'; 'b'", hint: ": XA COMMIT 'a'; or XA ROLLBACK 'a'; XA COMMIT 'b'; or XA ROLLBACK 'b';", without: "XA_RECOVER_ADMIN"},
		{
			name: "more than are named", limit: 1, looks: []list{{named("'a'"), named("'b'")}, {named("'a'"), named("'b'")}},
			detail: "2 transactions are left", hint: ": XA COMMIT 'a'; or XA ROLLBACK 'a';", without: "'b'",
		},
		{
			name: "some without a name", looks: []list{{{}, named("'b'")}, {{}, named("'b'")}},
			detail: "again: 'b'", hint: "XA ROLLBACK 'b'; (whose names are not seen", without: ": ;",
		},
		{name: "without a name", looks: []list{make(list, 2), make(list, 1)}, detail: "1 transaction is left", hint: "on MySQL for want of the right XA_RECOVER_ADMIN", without: "XA COMMIT"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				st := &coordinated{memstore.New(nil), c.looks}
				began := time.Now()
				d, err := Doctor(t.Context(), st, &DoctorConfig{Limit: c.limit})
				if err != nil {
					t.Fatal(err)
				}
				i := slices.IndexFunc(d.Examinations, func(e Examination) bool { return e.Check == CheckPrepared })
				if i < 0 {
					t.Fatalf("no examination of prepared transactions: %+v", d)
				}
				e := d.Examinations[i]
				if e.OK != c.ok || !strings.Contains(e.Detail, c.detail) || !strings.Contains(e.Hint, c.hint) {
					t.Errorf("got %+v, want %t, %q and %q", e, c.ok, c.detail, c.hint)
				}
				if c.without != "" && strings.Contains(e.Detail+e.Hint, c.without) {
					t.Errorf("got %+v, which has %q", e, c.without)
				}
				if waited := time.Since(began) > 0; waited != (len(c.looks) > 1) {
					t.Errorf("waited: %t, with %d looks", waited, len(c.looks))
				}
			})
		})
	}
}
