package store

// Names are the tables' names. The zero value of a field means its default;
// whatever is given is quoted, so any name works.
type Names struct {
	Schema   string // schema or database that holds the tables; empty: the connection's own
	Event    string // outbox_event
	Pending  string // outbox_pending
	Receipt  string // outbox_receipt
	Archive  string // outbox_event_archive
	Status   string // outbox_status, a view
	Lease    string // outbox_lease
	Relay    string // outbox_relay
	Meta     string // waybill_meta
	Audit    string // waybill_audit
	Consumed string // consumed_event
	Key      string // consumer_key
	Progress string // consumer_progress
	Held     string // held_event
	Reader   string // consumer_reader
	Member   string // consumer_member
	Effect   string // effect_call
	Horizon  string // consumer_horizon
	Head     string // outbox_head
	Position string // cdc_position
}

// WithDefaults returns the names with the empty ones filled in.
func (n Names) WithDefaults() Names {
	for _, f := range []struct {
		field *string
		name  string
	}{
		{&n.Event, "outbox_event"},
		{&n.Pending, "outbox_pending"},
		{&n.Receipt, "outbox_receipt"},
		{&n.Archive, "outbox_event_archive"},
		{&n.Status, "outbox_status"},
		{&n.Lease, "outbox_lease"},
		{&n.Relay, "outbox_relay"},
		{&n.Meta, "waybill_meta"},
		{&n.Audit, "waybill_audit"},
		{&n.Consumed, "consumed_event"},
		{&n.Key, "consumer_key"},
		{&n.Progress, "consumer_progress"},
		{&n.Held, "held_event"},
		{&n.Reader, "consumer_reader"},
		{&n.Member, "consumer_member"},
		{&n.Effect, "effect_call"},
		{&n.Horizon, "consumer_horizon"},
		{&n.Head, "outbox_head"},
		{&n.Position, "cdc_position"},
	} {
		if *f.field == "" {
			*f.field = f.name
		}
	}
	return n
}
