package store

import (
	"context"
	"errors"
	"fmt"
)

// SchemaVersion is the version of the tables that this code reads and writes.
const SchemaVersion = 3

// Lanes is the number of lanes. It is fixed: a row's lane is stored with it.
const Lanes = 64

var (
	// ErrNoSchema says that the tables do not exist.
	ErrNoSchema = errors.New("the waybill tables do not exist")
	// ErrSchemaNewer says that the tables belong to a newer release.
	ErrSchemaNewer = errors.New("the waybill tables belong to a newer release")
	// ErrSchemaOlder says that a migration is due.
	ErrSchemaOlder = errors.New("the waybill tables need a migration")
)

// CheckVersion compares the version of the tables with [SchemaVersion], and
// returns [ErrSchemaNewer] or [ErrSchemaOlder] where they differ.
func CheckVersion(version int) error {
	switch {
	case version > SchemaVersion:
		return fmt.Errorf("%w: they are version %d, this release knows %d", ErrSchemaNewer, version, SchemaVersion)
	case version < SchemaVersion:
		return fmt.Errorf("%w: they are version %d, this release wants %d", ErrSchemaOlder, version, SchemaVersion)
	}
	return nil
}

// CheckLanes compares the name of the function that gave the stored rows their
// lanes with the one that the adapter has. Another one is a newer release's.
func CheckLanes(stored, known string) error {
	if stored != known {
		return fmt.Errorf("%w: its lanes come from function %q, this release has %q", ErrSchemaNewer, stored, known)
	}
	return nil
}

// SchemaHint says what an operator does about one of the two, and is empty for
// other errors.
func SchemaHint(err error) string {
	switch {
	case errors.Is(err, ErrSchemaOlder):
		return "run the migration"
	case errors.Is(err, ErrSchemaNewer):
		return "use a newer release of waybill"
	}
	return ""
}

// MigrateOptions say which tables to make and how.
type MigrateOptions struct {
	// NoTrigger leaves out the trigger that queues each inserted event. Every
	// producer must then write the queue row itself, as Append does with an
	// adapter's Config.NoTrigger.
	NoTrigger bool
	// Head adds the table of heads, in which each aggregate's latest versioned
	// event outlives the facts, and fills it from the facts that are there. Once
	// added it stays, whatever later migrations say.
	Head bool
	// SkipOutbox and SkipInbox leave out the tables of one side.
	SkipOutbox, SkipInbox bool
}

// Meta is what the tables say of themselves.
type Meta struct {
	Version int  // schema version
	Trigger bool // whether the queue trigger is installed
	Outbox  bool // whether the outbox tables exist
	Inbox   bool // whether the inbox tables exist
	Head    bool // whether there is a table of heads
	// HeadTrigger says that a trigger keeps the heads. Where it is false and Head
	// is not, they are as old as what else keeps them.
	HeadTrigger bool
}

// Schema creates and checks the tables.
type Schema interface {
	// Migrate brings the tables to [SchemaVersion]. It may be repeated, by
	// several processes at once, and changes nothing that is right already. With
	// NoTrigger it removes a trigger that a former run installed, and without it
	// installs a missing one; heads that were not kept meanwhile are filled from
	// the facts. Statements that need a strong lock wait for it a
	// short time only and are tried again.
	Migrate(ctx context.Context, options MigrateOptions) error
	// MigrateSQL returns the statements that Migrate would run on an empty
	// database, as a script for the database's own shell.
	MigrateSQL(options MigrateOptions) string
	// ReadMeta returns what the tables say of themselves, [ErrNoSchema],
	// [ErrSchemaOlder] or [ErrSchemaNewer] (the last two with a filled Meta).
	ReadMeta(ctx context.Context) (Meta, error)
	// Ping reports whether the database answers and can be written.
	Ping(ctx context.Context) error
	// Close closes what the adapter opened itself.
	Close() error
}
