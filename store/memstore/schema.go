package memstore

import (
	"context"

	"github.com/waybillhq/waybill/store"
)

// Migrate makes the tables and installs or removes the trigger.
func (s *Store) Migrate(ctx context.Context, options store.MigrateOptions) error {
	return s.call(ctx, "migrate", func() error {
		if s.made && s.meta.Version > store.SchemaVersion {
			return store.CheckVersion(s.meta.Version)
		}
		s.made = true
		s.meta.Version = store.SchemaVersion
		if !options.SkipOutbox {
			s.meta.Outbox = true
			if !s.sending.External {
				s.meta.Trigger = !options.NoTrigger
			}
			if options.Head && !s.meta.Head || s.meta.Head && !s.meta.HeadTrigger && !options.NoTrigger {
				s.meta.Head = true
				for _, row := range s.outbox.events {
					s.outbox.setHead(row)
				}
			}
			s.meta.HeadTrigger = s.meta.Head && !options.NoTrigger
		}
		if !options.SkipInbox {
			s.meta.Inbox = true
		}
		return nil
	})
}

// MigrateSQL returns a comment: there is no shell to run a script in.
func (s *Store) MigrateSQL(store.MigrateOptions) string {
	return "-- memstore keeps its tables in memory: nothing to run\n"
}

// ReadMeta returns what Migrate made.
func (s *Store) ReadMeta(ctx context.Context) (store.Meta, error) {
	var meta store.Meta
	err := s.call(ctx, "read meta", func() error {
		if !s.made {
			return store.ErrNoSchema
		}
		meta = s.meta
		return store.CheckVersion(meta.Version)
	})
	return meta, err
}

// SetSchemaVersion pretends that another release made the tables.
func (s *Store) SetSchemaVersion(version int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.meta.Version = version
}

// LoseHeadTrigger pretends that somebody dropped the trigger that keeps the
// heads.
func (s *Store) LoseHeadTrigger() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.meta.HeadTrigger = false
}

// Ping reports what [Store.SetError] says of "ping".
func (s *Store) Ping(ctx context.Context) error {
	return s.call(ctx, "ping", func() error { return nil })
}

// Close makes all later operations fail.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}

func (s *Store) needOutbox() error {
	if !s.made || !s.meta.Outbox {
		return store.ErrNoSchema
	}
	return nil
}

func (s *Store) needInbox() error {
	if !s.made || !s.meta.Inbox {
		return store.ErrNoSchema
	}
	return nil
}
