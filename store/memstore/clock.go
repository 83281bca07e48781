package memstore

import "time"

// now is the database's clock, to the microsecond as a database keeps it.
func (s *Store) now() time.Time {
	clock := s.config.Now
	if clock == nil {
		clock = time.Now
	}
	return clock().UTC().Truncate(time.Microsecond)
}
