package lint

import (
	"fmt"
	"path"
	"strings"
)

// Records checks that no two decision records have one number: people cite them
// by it.
func Records(tree *Tree) []Finding {
	var found []Finding
	first := map[string]string{}
	for file := range tree.pages {
		if file.dir() != "docs/adr" {
			continue
		}
		number, _, _ := strings.Cut(path.Base(file.Path), "-")
		if other, taken := first[number]; taken {
			found = append(found, Finding{file.Path, 0, fmt.Sprintf("the number %s is taken by %s: use the next free one", number, other)})
			continue
		}
		first[number] = file.Path
	}
	return found
}
