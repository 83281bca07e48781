package mysql

import "github.com/waybillhq/waybill/store"

var ErrNotYours = errNotYours

// Text returns a statement of the list as this store sends it.
func (s *Store) Text(role, name string) string {
	for _, statement := range statements {
		if statement.role == role && statement.name == name {
			return s.sql(statement.template)
		}
	}
	panic("no such statement: " + role + " " + name)
}

// WalkText returns a walk over all lanes as it is sent, and its parameters.
func (s *Store) WalkText(limit int) (string, []any) {
	return s.walkText(store.WalkRequest{Lanes: everyLane(), Limit: limit})
}

// IsMariaDB tells which of the two servers this is.
func (s *Store) IsMariaDB() bool { return !s.dialect.of }

func everyLane() []store.LaneCursor {
	cursors := make([]store.LaneCursor, store.Lanes)
	for i := range cursors {
		cursors[i].Lane = i
	}
	return cursors
}
