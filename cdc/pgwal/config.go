package pgwal

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/waybillhq/waybill"
)

// Defaults of [Config].
const (
	DefaultEvent         = "outbox_event"
	DefaultSenderTimeout = 10 * time.Second
	DefaultSlotWait      = 10 * time.Second
)

// Config is how to read the log of a PostgreSQL database. A nil *Config is all
// defaults.
type Config struct {
	// Slot is the name of the replication slot: at most 63 lower-case letters,
	// digits and '_', unique on the whole server. Default: "waybill_" and the name
	// of the database, and that of the schema where one is given, with '_' for
	// what else they contain.
	Slot string
	// Publication is the name of the publication. Default: that of the slot.
	Publication string
	// Schema is where the outbox is. Default: found by the connection's search_path.
	Schema string
	// Event is the table of the events. Default: "outbox_event".
	Event string
	// Failover asks for a slot that standbys of PostgreSQL 17 or newer keep too, so
	// that a failover loses nothing of the log. Older servers refuse.
	Failover bool
	// SenderTimeout is after how long without a word the server gives a reader up
	// and frees the slot for another one: wal_sender_timeout of the connection.
	// Default: 10 s.
	SenderTimeout time.Duration
	// SlotWait is how long Open waits for a new slot until it tells which
	// transactions are in its way. The making goes on, and the next Open waits for it
	// again. Default: 10 s.
	SlotWait time.Duration
	// Logger takes what no error can tell: slots that are made and removed.
	// Default: discards.
	Logger *slog.Logger
}

const maxNameLen = 63

func (c *Config) withDefaults(database string) (Config, error) {
	var out Config
	if c != nil {
		out = *c
	}
	if out.Slot == "" {
		out.Slot = slotName(database, out.Schema)
	}
	if out.Publication == "" {
		out.Publication = out.Slot
	}
	if out.Event == "" {
		out.Event = DefaultEvent
	}
	if out.SenderTimeout == 0 {
		out.SenderTimeout = DefaultSenderTimeout
	}
	if out.SlotWait == 0 {
		out.SlotWait = DefaultSlotWait
	}
	if out.Logger == nil {
		out.Logger = slog.New(slog.DiscardHandler)
	}
	bad := func(err error) (Config, error) { return out, &waybill.Error{Op: "configure pgwal", Err: err} }
	if strings.Trim(out.Slot, slotLetters) != "" || len(out.Slot) > maxNameLen {
		return bad(fmt.Errorf("slot %q: use at most %d lower-case letters, digits and '_'", out.Slot, maxNameLen))
	}
	for _, name := range []string{out.Publication, out.Schema, out.Event} {
		if len(name) > maxNameLen || strings.ContainsRune(name, 0) {
			return bad(fmt.Errorf("name %q: at most %d bytes, none of them 0", name, maxNameLen))
		}
	}
	switch {
	case out.SenderTimeout < time.Second:
		return bad(errors.New("the sender's time-out is less than a second"))
	case out.SlotWait < 0:
		return bad(errors.New("the time to wait for a slot is negative"))
	}
	return out, nil
}

const slotLetters = "abcdefghijklmnopqrstuvwxyz0123456789_"

// slotName makes a name of the database's and the schema's. Where two come to one
// name, Setup or Open says that the slot or publication is another's.
func slotName(parts ...string) string {
	name := "waybill"
	for _, part := range parts {
		if part != "" {
			name += "_" + strings.Map(func(r rune) rune {
				if strings.ContainsRune(slotLetters, r) {
					return r
				}
				return '_'
			}, strings.ToLower(part))
		}
	}
	return name[:min(len(name), maxNameLen)]
}
