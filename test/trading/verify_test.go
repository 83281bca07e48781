package trading

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/examples/trading/chain"
	"github.com/waybillhq/waybill/store"
)

// effects is how many effects the events of the shop must have, in all groups.
func (w *town) effects() (n int) {
	w.t.Helper()
	for _, facts := range byOrder(w.facts(w.shopDB)) {
		n += len(groups) * len(healthy(facts))
	}
	return n
}

// wanted is how many there must be with those of the fulfilments told so far,
// which the ledger alone reads.
func (w *town) wanted() int {
	w.t.Helper()
	return w.ofShop + number(w.t, w.back, `SELECT COUNT(*) FROM outbox_event`)
}

// consumed is how many there are.
func (w *town) consumed() int {
	w.t.Helper()
	return number(w.t, w.back, `SELECT COUNT(*) FROM consumed_event`)
}

// settled reports whether nothing waits but behind what is dead.
func (w *town) settled() bool {
	for _, group := range groups {
		counts, err := w.held.CountHeld(w.t.Context(), groupName(w.run, group))
		if err != nil || counts.Retry > 0 {
			return false
		}
	}
	return true
}

// A fact is an event as the outbox has it.
type fact struct {
	id, kind, aggregate string
	correlation, cause  string
	order               chain.Order
}

// facts reads an outbox in the order of its ids.
func (w *town) facts(db *sql.DB) (all []fact) {
	w.t.Helper()
	rows, err := db.QueryContext(w.t.Context(), `SELECT event_id, event_type, aggregate_id, payload, headers FROM outbox_event ORDER BY id`)
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var f fact
		var payload, headers []byte
		if err := rows.Scan(&f.id, &f.kind, &f.aggregate, &payload, &headers); err != nil {
			w.t.Fatal(err)
		}
		if err := json.Unmarshal(payload, &f.order); err != nil {
			w.t.Fatal(err)
		}
		var e waybill.Event
		if err := e.UnmarshalHeaders(headers); err != nil {
			w.t.Fatal(err)
		}
		f.correlation, f.cause = e.CorrelationID, e.CausationID
		all = append(all, f)
	}
	if err := rows.Err(); err != nil {
		w.t.Fatal(err)
	}
	return all
}

func byOrder(facts []fact) map[string][]fact {
	all := make(map[string][]fact)
	for _, f := range facts {
		all[f.aggregate] = append(all[f.aggregate], f)
	}
	return all
}

// healthy returns what comes before an order's poison.
func healthy(facts []fact) []fact {
	for i := range facts {
		if facts[i].order.Poison {
			return facts[:i]
		}
	}
	return facts
}

// verify compares what the consumers hold with what was committed.
func (w *town) verify(orders int) {
	w.t.Helper()
	committed := byOrder(w.facts(w.shopDB))
	if len(committed) != orders {
		w.t.Errorf("events of %d orders were committed, want %d", len(committed), orders)
	}
	points, ledger := make(map[string]string), make(map[string]string)
	poison := make(map[string]bool)
	paid := make(map[string]fact)
	for id, facts := range committed {
		if want := amendments + 2; len(facts) != want {
			w.t.Errorf("order %s has %d events, want %d", id, len(facts), want)
		}
		hash, amount, score, good := "", int64(0), int64(0), healthy(facts)
		for _, f := range good {
			hash = chain.Chain(hash, f.id)
			amount += f.order.Amount
			if f.kind == "OrderPaid" {
				score += f.order.Amount
				paid[id] = f
			}
		}
		points[facts[0].order.Customer] = fmt.Sprintf("%d points of %d events", score, len(good))
		ledger[id+"/order"] = fmt.Sprintf("%d of %d events, %s", amount, len(good), hash)
		if len(good) < len(facts) {
			poison[facts[len(good)].id] = true
		}
	}
	// What fulfilment told, by its own outbox: once for each paid order.
	told := byOrder(w.facts(w.back))
	for id, cause := range paid {
		facts := told[id]
		if len(facts) != 1 || facts[0].cause != cause.id || facts[0].correlation != "checkout-"+id {
			w.t.Errorf("order %s: fulfilments %+v, want one that follows %s", id, facts, cause.id)
			continue
		}
		ledger[id+"/fulfilment"] = fmt.Sprintf("%d of 1 events, %s", cause.order.Amount, chain.Chain("", facts[0].id))
	}
	if len(told) != len(paid) {
		w.t.Errorf("%d fulfilments, want %d", len(told), len(paid))
	}
	compare(w.t, "points", points, w.pairs(`SELECT customer, points, 'points of', events, 'events' FROM points`))
	compare(w.t, "ledger", ledger, w.pairs(`SELECT CONCAT(order_id, '/', kind), amount, 'of', events, 'events,', hash FROM ledger`))
	w.verifyGroups(len(paid), poison)
}

// verifyGroups checks that each group has applied each event once, and has each
// poison dead with its first cause.
func (w *town) verifyGroups(paid int, poison map[string]bool) {
	w.t.Helper()
	for _, group := range groups {
		name := groupName(w.run, group)
		if n := number(w.t, w.back, `SELECT COUNT(*) FROM consumed_event WHERE outcome = 'APPLIED' AND event_type = 'OrderPaid' AND consumer_group = '`+name+`'`); n != paid {
			w.t.Errorf("group %s has applied %d events OrderPaid, want %d", group, n, paid)
		}
		dead := make(map[string]bool)
		for after := int64(0); ; {
			page, err := w.held.ListHeld(w.t.Context(), name, store.HeldFilter{State: store.HeldDead, After: after})
			if err != nil {
				w.t.Fatal(err)
			}
			for _, h := range page {
				after = h.Seq
				dead[h.Event.ID] = true
				if want := "poison in " + h.Event.ID; h.FirstErr != want {
					w.t.Errorf("group %s: first cause of %s is %q, want %q", group, h.Event.ID, h.FirstErr, want)
				}
			}
			if len(page) == 0 {
				break
			}
		}
		if !maps.Equal(dead, poison) {
			w.t.Errorf("group %s: %d dead %v, want %d %v", group, len(dead), dead, len(poison), poison)
		}
	}
	if calls, grants := w.coupons.Count(); grants != paid {
		w.t.Errorf("%d coupons by %d calls, want %d coupons", grants, calls, paid)
	}
	if n := number(w.t, w.back, `SELECT COUNT(*) FROM fulfilment WHERE status = 'DONE' AND coupon IS NOT NULL`); n != paid {
		w.t.Errorf("%d fulfilments are DONE, want %d", n, paid)
	}
}

// pairs reads rows as a key and the rest as text.
func (w *town) pairs(query string) map[string]string {
	w.t.Helper()
	rows, err := w.back.QueryContext(w.t.Context(), query)
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	columns, err := rows.Columns()
	if err != nil {
		w.t.Fatal(err)
	}
	all := make(map[string]string)
	for rows.Next() {
		texts, into := make([]string, len(columns)), make([]any, len(columns))
		for i := range texts {
			into[i] = &texts[i]
		}
		if err := rows.Scan(into...); err != nil {
			w.t.Fatal(err)
		}
		all[texts[0]] = strings.Join(texts[1:], " ")
	}
	if err := rows.Err(); err != nil {
		w.t.Fatal(err)
	}
	return all
}

func compare(t *testing.T, what string, want, got map[string]string) {
	t.Helper()
	shown := 0
	for key, text := range want {
		if got[key] != text {
			if shown++; shown <= 5 {
				t.Errorf("%s of %s: %q, want %q", what, key, got[key], text)
			}
		}
	}
	for key, text := range got {
		if _, known := want[key]; !known {
			if shown++; shown <= 5 {
				t.Errorf("%s of %s: %q, want none", what, key, text)
			}
		}
	}
	if shown > 5 {
		t.Errorf("%s: %d differences in all", what, shown)
	}
}
