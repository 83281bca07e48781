package main

import (
	"strings"
	"testing"
	"time"
)

func TestThreeCallbacksMakeOneOfEverything(t *testing.T) {
	var out strings.Builder
	if err := run(t.Context(), &out, time.Minute); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	for _, want := range []string{
		"3 times about payment P-77; 1 of the calls paid the order\n",
		"OrderPlaced     of /shop        process checkout-O-1001, caused by -\n",
		"OrderPaid       of /shop        process checkout-O-1001, caused by /order/O-1001/1/OrderPlaced\n",
		"OrderFulfilled  of /fulfilment  process checkout-O-1001, caused by /order/O-1001/2/OrderPaid\n",
		"group fulfilment  applied OrderPaid 1 time\n",
		"group points      applied OrderPaid 1 time\n",
		"group ledger      applied OrderPaid 1 time, OrderFulfilled 1 time\n",
		"order PAID; 1 coupon (COUPON-1-anna) by 1 call; 2590 points; 3 events in the ledger\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it does not say %q", want)
		}
	}
	if n := strings.Count(out.String(), "OrderPaid  "); n != 1 {
		t.Errorf("%d events OrderPaid, want 1", n)
	}
	if t.Failed() {
		t.Log(out.String())
	}
}
