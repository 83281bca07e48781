package mybinlog

import (
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/waybillhq/waybill"
)

// Defaults of [Config].
const (
	DefaultEvent     = "outbox_event"
	DefaultMeta      = "waybill_meta"
	DefaultHeartbeat = 5 * time.Second
)

// Config is how to read the log of a MySQL or MariaDB server. A nil *Config is
// all defaults.
type Config struct {
	// Schema is the database that has the outbox. Default: the DSN's.
	Schema string
	// Event is the table of the events. Default: "outbox_event".
	Event string
	// Meta is the table of waybill's own settings, in which marks are written.
	// Default: "waybill_meta".
	Meta string
	// ServerID is the number by which the server knows this reader, as it knows its
	// replicas: no other of them may have it. 0 means one that is derived from the
	// host's name and the source's, and stays the same.
	ServerID uint32
	// Heartbeat is how often an idle server says that it is there; a connection that
	// is silent for three times as long is given up. Default: 5 s.
	Heartbeat time.Duration
	// Logger takes what no error can tell. Default: discards.
	Logger *slog.Logger
}

// maxNameLen is what both servers allow, in characters.
const maxNameLen = 64

func (c *Config) withDefaults(database string) (Config, error) {
	var out Config
	if c != nil {
		out = *c
	}
	if out.Schema == "" {
		out.Schema = database
	}
	if out.Event == "" {
		out.Event = DefaultEvent
	}
	if out.Meta == "" {
		out.Meta = DefaultMeta
	}
	if out.Heartbeat == 0 {
		out.Heartbeat = DefaultHeartbeat
	}
	if out.Logger == nil {
		out.Logger = slog.New(slog.DiscardHandler)
	}
	bad := func(err error) (Config, error) { return out, &waybill.Error{Op: "configure mybinlog", Err: err} }
	for _, name := range []string{out.Schema, out.Event, out.Meta} {
		if name == "" || utf8.RuneCountInString(name) > maxNameLen || strings.ContainsRune(name, 0) {
			return bad(fmt.Errorf("name %q: 1 to %d characters, none of them 0", name, maxNameLen))
		}
	}
	if out.Heartbeat < 100*time.Millisecond {
		return bad(errors.New("a heartbeat is at least 100 ms"))
	}
	return out, nil
}

// deriveServerID keeps away from the small numbers that people choose.
func deriveServerID(host, name string) uint32 {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(host + "\x00" + name))
	return 1<<30 | sum.Sum32()>>2
}
