package lint

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// toolsModule pins what only developers run; its requirements must not meet
// those of the product, so it is no part of the workspace.
const toolsModule = "tools"

// Modules checks that modules.txt, go.work and the go.mod files name the same
// modules, and that each is called after its directory.
func Modules(tree *Tree) []Finding {
	work, list := tree.file("go.work"), tree.file("modules.txt")
	if work == nil || list == nil {
		return []Finding{{"modules.txt", 0, "both go.work and modules.txt must exist: they name the modules for the go command and for scripts"}}
	}
	used, listed := useLines(string(work.Text)), strings.Fields(string(list.Text))
	var found []Finding
	for _, dir := range used {
		if !slices.Contains(listed, dir) {
			found = append(found, Finding{"modules.txt", 0, fmt.Sprintf("%s is in go.work and not here: add the line", dir)})
		}
	}
	for _, dir := range listed {
		if !slices.Contains(used, dir) {
			found = append(found, Finding{"go.work", 0, fmt.Sprintf("%s is in modules.txt and not here: run go work use ./%s", dir, dir)})
		}
		if !slices.Contains(tree.modules, dir) {
			found = append(found, Finding{"modules.txt", 0, fmt.Sprintf("%s has no go.mod: a module is born with its code", dir)})
		}
	}
	for _, dir := range tree.modules {
		name := path.Join(dir, "go.mod")
		if dir != toolsModule && !slices.Contains(listed, dir) {
			found = append(found, Finding{name, 0, fmt.Sprintf("the module is not in modules.txt: add the line %s there and to go.work", dir)})
		}
		want := path.Join(modulePath, dir)
		if got := moduleLine.FindStringSubmatch(string(tree.file(name).Text)); got == nil || got[1] != want {
			found = append(found, Finding{name, 0, fmt.Sprintf("the module must be called %s, after its directory", want)})
		}
	}
	return found
}

var moduleLine = regexp.MustCompile(`(?m)^module\s+(\S+)`)

// useLines returns the directories of a go.work file's use directives, in the
// spelling of modules.txt.
func useLines(text string) []string {
	var dirs []string
	block := false
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "//")
		fields := strings.Fields(line)
		switch {
		case len(fields) == 0:
		case block && fields[0] == ")":
			block = false
		case block:
			dirs = append(dirs, path.Clean(fields[0]))
		case fields[0] == "use" && len(fields) > 1 && fields[1] == "(":
			block = true
		case fields[0] == "use" && len(fields) > 1:
			dirs = append(dirs, path.Clean(fields[1]))
		}
	}
	return dirs
}

// Pins checks that all modules of the workspace ask for one version of each
// library, because the workspace builds with the highest of them and so would
// test what no user gets.
func Pins(tree *Tree) []Finding {
	type pin struct{ version, path string }
	first := make(map[string]pin)
	var found []Finding
	for _, dir := range tree.modules {
		if dir == toolsModule {
			continue
		}
		name := path.Join(dir, "go.mod")
		for _, match := range requireLine.FindAllStringSubmatch(string(tree.file(name).Text), -1) {
			library, version := match[1], match[2]
			if strings.HasPrefix(library, modulePath) || strings.Contains(match[3], "indirect") {
				continue
			}
			if before, ok := first[library]; !ok {
				first[library] = pin{version, name}
			} else if before.version != version {
				found = append(found, Finding{name, 0, fmt.Sprintf("%s %s, but %s has %s: agree on one", library, version, before.path, before.version)})
			}
		}
	}
	return found
}

var requireLine = regexp.MustCompile(`(?m)^(?:require)?\s+(\S+\.\S+)\s+(v\S+)(.*)$`)
