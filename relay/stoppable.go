package relay

import (
	"context"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
	"github.com/waybillhq/waybill/internal/fault"
)

// stoppable wraps the publisher of a process that was told to stop in the
// middle of a batch: it sends a batch in two halves.
func stoppable(publisher broker.Publisher) broker.Publisher {
	if !fault.Armed("relay.mid_batch") {
		return publisher
	}
	return halves{publisher}
}

type halves struct{ broker.Publisher }

func (h halves) Publish(ctx context.Context, records []waybill.Record) []error {
	if len(records) < 2 {
		return h.Publisher.Publish(ctx, records)
	}
	middle := len(records) / 2
	errs := h.Publisher.Publish(ctx, records[:middle])
	fault.Point("relay.mid_batch")
	return append(errs, h.Publisher.Publish(ctx, records[middle:])...)
}
