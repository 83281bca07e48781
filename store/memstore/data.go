package memstore

import "context"

type dataKey struct{ table, key string }

// Set writes a row of a table of the test's own, and locks it.
func (tx *Tx) Set(ctx context.Context, table, key, value string) error {
	return tx.Update(ctx, table, key, func(string, bool) string { return value })
}

// Update locks a row of a table of the test's own, reads it, and writes what
// change makes of it; found says whether the row was there.
func (tx *Tx) Update(ctx context.Context, table, key string, change func(old string, found bool) string) error {
	return tx.callLocked(ctx, "set", table+"/"+key, lockKey{"data", table, key, ""}, func() error {
		old, found := tx.data(dataKey{table, key})
		value := change(old, found)
		tx.writes.data[dataKey{table, key}] = &value
		return nil
	})
}

// Delete removes a row of a table of the test's own, and locks it.
func (tx *Tx) Delete(ctx context.Context, table, key string) error {
	return tx.callLocked(ctx, "set", table+"/"+key, lockKey{"data", table, key, ""}, func() error {
		tx.writes.data[dataKey{table, key}] = nil
		return nil
	})
}

// Get reads a row of a table of the test's own, without a lock.
func (tx *Tx) Get(ctx context.Context, table, key string) (value string, found bool, err error) {
	err = tx.call(ctx, "get", table+"/"+key, func() error {
		value, found = tx.data(dataKey{table, key})
		return nil
	})
	return value, found, err
}

func (tx *Tx) data(key dataKey) (string, bool) {
	if own, ok := tx.writes.data[key]; ok {
		if own == nil {
			return "", false
		}
		return *own, true
	}
	value, found := tx.store.data[key]
	return value, found
}

// Rows returns the committed rows of a table of the test's own.
func (s *Store) Rows(table string) map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	rows := make(map[string]string)
	for key, value := range s.data {
		if key.table == table {
			rows[key.key] = value
		}
	}
	return rows
}
