package bench

import (
	"context"
	"fmt"

	"github.com/waybillhq/waybill"
)

// Limits are what the parts can do alone on this machine, in events per second.
type Limits struct {
	ProduceEventsPerS float64 `json:"produce_events_per_s"` // records of the same data given to the broker, all at once, by its own library
	ReadEventsPerS    float64 `json:"read_events_per_s"`    // rows of the three tables, joined and in order, read to the end
}

// produce gives n records to the broker.
func (h *house) produce(ctx context.Context, o *Options, n int) (float64, error) {
	if h.kind == kindNone {
		return 0, nil
	}
	p, err := h.producer(ctx)
	if err != nil {
		return 0, err
	}
	defer p.close()
	from := newSource(h.topic, o)
	records := make([]waybill.Record, n)
	for i := range records {
		e := from.event()
		if records[i], err = waybill.Encode(waybill.FormatRaw, &e); err != nil {
			return 0, err
		}
	}
	began := now()
	if err := p.produce(ctx, records); err != nil {
		return 0, err
	}
	return ratio(float64(n), since(began)), nil
}

const readAllSQL = `
SELECT e.id, e.event_id, e.topic, e.event_key, e.payload, COALESCE(p.status, r.outcome)
FROM outbox_event e
LEFT JOIN outbox_pending p ON p.id = e.id
LEFT JOIN outbox_receipt r ON r.id = e.id
ORDER BY e.id`

// readAll reads everything once.
func (d *database) readAll(ctx context.Context) (float64, error) {
	began, n := now(), 0
	rows, err := d.db.QueryContext(ctx, readAllSQL)
	if err != nil {
		return 0, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var id int64
		var eventID, topic, key, status string
		var payload []byte
		if err := rows.Scan(&id, &eventID, &topic, &key, &payload, &status); err != nil {
			return 0, err
		}
		n++
	}
	return ratio(float64(n), since(began)), rows.Err()
}

func perSecond(n float64) string {
	if n >= 10_000 {
		return fmt.Sprintf("%.1f k/s", n/1000)
	}
	return fmt.Sprintf("%.0f/s", n)
}
