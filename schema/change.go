package schema

import "fmt"

// Kind says what was changed.
type Kind string

// The kinds of changes.
const (
	RemovedField     Kind = "removed-field"      // consumers miss it
	ChangedType      Kind = "changed-type"       // either side may trip
	NarrowedEnum     Kind = "narrowed-enum"      // old data is refused
	WidenedEnum      Kind = "widened-enum"       // consumers may not know the new values; does not break
	NewlyRequired    Kind = "newly-required"     // old data is refused
	NoLongerRequired Kind = "no-longer-required" // consumers may miss it
	Closed           Kind = "closed"             // old data with further fields is refused
	NarrowedRange    Kind = "narrowed-range"     // old data is refused
	ChangedText      Kind = "changed-text"       // a pattern or a format: old data may be refused
	ChangedRule      Kind = "changed-rule"       // a rule that cannot be compared, as anyOf, is another
	AddedField       Kind = "added-field"        // does not break
	RemovedSchema    Kind = "removed-schema"     // of a folder: events of the type cannot be judged any more
)

// Change is one difference between two schemas.
type Change struct {
	Schema string `json:"schema,omitempty"` // the file's name, where folders are compared
	Path   string `json:"path"`             // in the data, "/items/*/price"; "" is the whole
	Kind   Kind   `json:"kind"`
	Breaks bool   `json:"breaks"`        // consumers of the old schema, or old data
	Old    string `json:"old,omitempty"` // as JSON, where it says something
	New    string `json:"new,omitempty"`
}

// String tells the change in a line.
func (c Change) String() string {
	path := c.Path
	if path == "" {
		path = "/"
	}
	text := fmt.Sprintf("%s %s", c.Kind, path)
	if c.Schema != "" {
		text = c.Schema + ": " + text
	}
	switch {
	case c.Old != "" && c.New != "":
		text += fmt.Sprintf(": %s became %s", c.Old, c.New)
	case c.Old != "":
		text += fmt.Sprintf(": %s", c.Old)
	case c.New != "":
		text += fmt.Sprintf(": %s", c.New)
	}
	return text
}

// Breaking returns how many of the changes break somebody.
func Breaking(changes []Change) (n int) {
	for _, c := range changes {
		if c.Breaks {
			n++
		}
	}
	return n
}
