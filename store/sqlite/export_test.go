package sqlite

import "github.com/waybillhq/waybill/store"

// FindStatements returns what Find puts together for the usual questions.
func FindStatements(s *Store) []Statement {
	byID, _ := findText(findSQL, "", store.Filter{EventIDs: []string{"e"}})
	byKey, _ := findText(findSQL, "", store.Filter{Key: "k"})
	return []Statement{
		{"find by event id", s.lexicon.Replace(byID)},
		{"find by key", s.lexicon.Replace(byKey)},
	}
}
