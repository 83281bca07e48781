package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	"github.com/waybillhq/waybill/examples/trading/chain"
	"github.com/waybillhq/waybill/store"
)

// play has an order paid and its payment reported three times, waits until the
// books are complete, and tells what they hold.
func (t *town) play(ctx context.Context, out io.Writer) error {
	if err := t.shop.Place(ctx, chain.Order{ID: "O-1001", Customer: "anna", Amount: 2590}); err != nil {
		return err
	}
	provider := httptest.NewServer(t.shop.Callback())
	defer provider.Close()
	firsts, err := callThreeTimes(ctx, provider.URL+"/payments", chain.Payment{No: "P-77", OrderID: "O-1001", Amount: 2590})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "the provider called 3 times about payment P-77; %d of the calls paid the order\n\n", firsts)
	if err := t.await(ctx); err != nil {
		return err
	}
	return t.tell(ctx, out)
}

// callThreeTimes calls twice at once and once more, and counts the calls that
// were the first.
func callThreeTimes(ctx context.Context, url string, p chain.Payment) (firsts int, err error) {
	body, err := json.Marshal(p)
	if err != nil {
		return 0, err
	}
	var mu sync.Mutex
	call := func() {
		first, callErr := call(ctx, url, body)
		mu.Lock()
		defer mu.Unlock()
		if callErr != nil {
			err = callErr
		} else if first {
			firsts++
		}
	}
	var both sync.WaitGroup
	both.Go(call)
	both.Go(call)
	both.Wait()
	call()
	return firsts, err
}

func call(ctx context.Context, url string, body []byte) (first bool, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return false, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false, err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return false, err
	}
	if response.StatusCode != http.StatusOK {
		return false, fmt.Errorf("payment: %s: %s", response.Status, text)
	}
	var answer struct{ First bool }
	err = json.Unmarshal(text, &answer)
	return answer.First, err
}

// await waits for the last link: the ledger's page of the fulfilment, and for
// those who hear of the order directly.
func (t *town) await(ctx context.Context) error {
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for {
		var ledger, points int
		const done = `SELECT (SELECT COALESCE(SUM(events), 0) FROM ledger), (SELECT COALESCE(SUM(events), 0) FROM points)`
		if err := t.books.DB().QueryRowContext(ctx, done).Scan(&ledger, &points); err != nil {
			return err
		}
		if ledger >= 3 && points >= 2 {
			return nil
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return fmt.Errorf("the ledger knows %d events of 3, points %d of 2: %w", ledger, points, ctx.Err())
		}
	}
}

func (t *town) tell(ctx context.Context, out io.Writer) error {
	for _, st := range []store.Inspector{t.orders, t.fulfilment} {
		events, err := st.Find(ctx, store.Filter{})
		if err != nil {
			return err
		}
		for _, e := range events {
			cause := e.Event.CausationID
			if cause == "" {
				cause = "-"
			}
			fmt.Fprintf(out, "%-14s  of %-11s  process %s, caused by %s\n", e.Event.Type, e.Event.Source, e.Event.CorrelationID, cause)
		}
	}
	fmt.Fprintln(out)
	for _, group := range []struct {
		name string
		st   store.HeldReader
		ids  []string
	}{
		{"fulfilment", t.fulfilment, []string{"/order/O-1001/2/OrderPaid"}},
		{"points", t.books, []string{"/order/O-1001/2/OrderPaid"}},
		{"ledger", t.books, []string{"/order/O-1001/2/OrderPaid", "/fulfilment/O-1001/1/OrderFulfilled"}},
	} {
		var applied []string
		for _, id := range group.ids {
			rows, err := group.st.FindConsumed(ctx, id)
			if err != nil {
				return err
			}
			n := 0
			for _, row := range rows {
				if row.Group == group.name {
					n++
				}
			}
			applied = append(applied, fmt.Sprintf("%s %d time", id[strings.LastIndex(id, "/")+1:], n))
		}
		fmt.Fprintf(out, "group %-10s  applied %s\n", group.name, strings.Join(applied, ", "))
	}
	var status, coupon string
	if err := t.orders.DB().QueryRowContext(ctx, `SELECT status FROM shop_order WHERE id = 'O-1001'`).Scan(&status); err != nil {
		return err
	}
	if err := t.fulfilment.DB().QueryRowContext(ctx, `SELECT coupon FROM fulfilment WHERE order_id = 'O-1001'`).Scan(&coupon); err != nil {
		return err
	}
	var points, booked int64
	if err := t.books.DB().QueryRowContext(ctx, `SELECT points FROM points WHERE customer = 'anna'`).Scan(&points); err != nil {
		return err
	}
	if err := t.books.DB().QueryRowContext(ctx, `SELECT SUM(events) FROM ledger`).Scan(&booked); err != nil {
		return err
	}
	calls, grants := t.coupons.Count()
	fmt.Fprintf(out, "\norder %s; %d coupon (%s) by %d call; %d points; %d events in the ledger\n", status, grants, coupon, calls, points, booked)
	return nil
}
