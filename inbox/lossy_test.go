package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker/membroker"
	"github.com/waybillhq/waybill/inbox"
)

// What a lossy processor has taken from the broker never comes again, not even
// to the next process, whatever became of it.
func TestLossyProcessorHandlesAtMostOnce(t *testing.T) {
	messages := membroker.New("orders")
	var records []waybill.Record
	for i := range 5 {
		e := waybill.Event{ID: fmt.Sprintf("e-%d", i), Type: "OrderPaid", Topic: "orders", AggregateType: "order", AggregateID: "O-1"}
		record, err := waybill.Encode(waybill.FormatEnvelope, &e)
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, record)
	}
	records = append(records, waybill.Record{Topic: "orders", Key: "O-1", Value: []byte("nonsense")})
	messages.Publish(t.Context(), records)

	var mu sync.Mutex
	var handled, lost []string
	var enough chan struct{}
	run := func(until int) {
		enough = make(chan struct{})
		note := func(list *[]string, id string) {
			mu.Lock()
			defer mu.Unlock()
			if *list = append(*list, id); len(handled)+len(lost) == until {
				close(enough)
			}
		}
		p, err := inbox.NewLossy(messages.Connect(), func(_ context.Context, e waybill.Event) error {
			switch e.ID {
			case "e-1":
				return errors.New("boom")
			case "e-2":
				panic("boom")
			}
			note(&handled, e.ID)
			return nil
		}, &inbox.LossyConfig{
			Group: "screen", Topics: []string{"orders"}, PollWait: 10 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
			Lost: func(e waybill.Event, _ error) { note(&lost, e.ID) },
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		go func() { <-enough; cancel() }()
		if err := p.Run(ctx); err != nil {
			t.Fatal(err)
		}
	}
	run(6)
	messages.Publish(t.Context(), records[4:5])
	run(7) // the next process gets what came since, and nothing of before
	if want := []string{"e-0", "e-3", "e-4", "e-4"}; !slices.Equal(handled, want) {
		t.Errorf("handled %v, want %v", handled, want)
	}
	if want := []string{"e-1", "e-2", ""}; !slices.Equal(lost, want) {
		t.Errorf("lost %v, want %v", lost, want)
	}
}

func TestLossyProcessorNeedsNames(t *testing.T) {
	handler := func(context.Context, waybill.Event) error { return nil }
	if _, err := inbox.NewLossy(membroker.New(), handler, &inbox.LossyConfig{Topics: []string{"orders"}}); err == nil {
		t.Error("no group, and no error")
	}
	if _, err := inbox.NewLossy(membroker.New(), nil, &inbox.LossyConfig{Group: "g", Topics: []string{"orders"}}); err == nil {
		t.Error("no handler, and no error")
	}
}
