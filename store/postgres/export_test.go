package postgres

// Text returns a statement of the list as this store sends it.
func (s *Store) Text(role, name string) string {
	for _, statement := range statements {
		if statement.role == role && statement.name == name {
			return s.sql(statement.template)
		}
	}
	panic("no such statement: " + role + " " + name)
}
