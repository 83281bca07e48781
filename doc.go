// Package waybill carries events from the transaction that made a change to
// the consumers that must learn of it. It has the words that all parts share:
// [Event] and its id, the wire formats, the errors. This page is the tutorial of
// the whole.
//
//	business row + event ──► relay ──► broker ──► consumer: effect + event id
//	  (one transaction)                              (one transaction)
//
// Delivery is at least once; a consumer that keeps the ids of what it has
// applied makes that once in effect. Events of one topic and key stay in order
// through retries, crashes and outages.
//
// # Append
//
// The tables live in the service's own database: the store's Migrate makes
// them, or the SQL that MigrateSQL prints. An event is appended inside the
// transaction that makes the change it tells of, so that both are committed or
// neither is:
//
//	err = writer.Append(ctx, tx, waybill.Event{
//		ID:               waybill.NewID(),
//		Type:             "OrderPaid",
//		Topic:            "orders",
//		AggregateType:    "order",
//		AggregateID:      order,
//		AggregateVersion: 1,
//		Data:             []byte(`{"total": 25.90}`),
//	})
//
// The writer comes from the package outbox and works with the transactions of
// its store: *sql.Tx and its like, pgx.Tx, or those of the store in memory.
//
//	writer := outbox.NewWriter(orders, &outbox.Config{Source: "/orders"})
//
// Events with equal keys (the aggregate's id, unless Key says otherwise) are
// delivered in the order in which they were appended. A producer that may run
// twice takes [KeyID] instead of [NewID] and AppendMissing instead of Append.
// A producer in another language needs no library: one INSERT into outbox_event
// is the whole contract.
//
// # Relay
//
// A relay reads what was committed, publishes it, and settles it once the broker
// has answered. Run several for availability; they share the work by leases.
//
//	r, err := relay.New(db, events, &relay.Config{
//		Default: relay.TopicConfig{Format: waybill.FormatCloudEvents},
//	})
//
// Run blocks until its context ends, and then drains:
//
//	return r.Run(ctx)
//
// A record that the broker refuses is tried again with growing pauses and keeps
// back its own key only; in the end it is DEAD and waits for a person. An outage
// of the broker costs no attempts.
//
// # Formats
//
// [Encode] lays an event out as a JSON envelope, as a CloudEvent, or as raw data
// with metadata in headers; [Decode] tells which of them a record is and reads
// it. Data is opaque: the bytes that went in come out, at any consumer.
//
// # Consume
//
// A consumer gives the package inbox a handler:
//
//	func reserve(ctx context.Context, tx *memstore.Tx, event waybill.Event) error {
//		return tx.Set(ctx, "reservations", event.AggregateID, event.Type)
//	}
//
// What it writes with tx is committed together with the event's id in the table
// consumed_event, in the consumer's database. An event that comes again finds its
// id and is not applied again. What one handler refuses is held, tried again and
// at last DEAD, and only later events of its key wait for it.
//
//	p, err := inbox.New(db, events, reserve, &inbox.Config{Group: "stock", Topics: []string{"orders"}})
//
// # Operate and test
//
// The package ops answers where an event is and why, and has the verbs for dead
// ones; the command waybill is its face. The package waybilltest has assertions
// for tests of producers and consumers.
package waybill
