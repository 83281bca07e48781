package lint

import (
	"bytes"
	"fmt"
	"go/ast"
	"path"
	"regexp"
	"slices"
	"strings"
)

// longest is the number of lines that a file may have.
const longest = 800

// FileLength checks that files can be read at one sitting.
func FileLength(tree *Tree) []Finding {
	var found []Finding
	for file := range tree.code {
		if lines := bytes.Count(file.Text, []byte("\n")); lines > longest {
			found = append(found, Finding{file.Path, 0, fmt.Sprintf("%d lines, limit %d: give each role in it a file of its own", lines, longest)})
		}
	}
	return found
}

// clockFiles may read the wall clock beside those named clock.go.
var clockFiles = []string{
	"id.go",                   // an id of version 7 holds the time
	"outbox/writer.go",        // the default of OccurredAt
	"relay/relaytest/wait.go", // polls, and lets a store answer slowly
}

// Clock checks that time is read in few places: leases and schedules run by
// the database's clock, and a test that sleeps is slow or flaky, often both. A
// test may sleep within a loop: that is how it polls.
func Clock(tree *Tree) []Finding {
	var found []Finding
	for file := range tree.code {
		base := path.Base(file.Path)
		if base == "clock.go" || base == "clock_test.go" || slices.Contains(clockFiles, file.Path) {
			continue
		}
		testing := file.test() || strings.HasSuffix(file.dir(), "test") // suites are tests too
		synthetic := false                                              // inside a bubble of testing/synctest sleeping is exact and free
		for _, one := range file.imports() {
			synthetic = synthetic || one.path == "testing/synctest"
		}
		file.uses("time", func(name string, line int) {
			switch {
			case name == "Sleep" && testing && (synthetic || file.inLoop(line)):
			case name == "Sleep" && testing:
				found = append(found, Finding{file.Path, line, "time.Sleep in a test: poll for the condition until a deadline, or use testing/synctest"})
			case name == "Sleep" && !testing:
				found = append(found, Finding{file.Path, line, "time.Sleep: wait on a timer and a context"})
			case name == "Now" && !testing:
				found = append(found, Finding{file.Path, line, "time.Now: use the database's clock, or put the reading into the package's clock.go"})
			}
		})
	}
	return found
}

// inLoop reports whether a line lies in the body of a loop.
func (f *File) inLoop(line int) bool {
	found := false
	ast.Inspect(f.Go, func(node ast.Node) bool {
		var body *ast.BlockStmt
		switch loop := node.(type) {
		case *ast.ForStmt:
			body = loop.Body
		case *ast.RangeStmt:
			body = loop.Body
		}
		if body != nil && f.line(body) <= line && line <= f.set.Position(body.End()).Line {
			found = true
		}
		return !found
	})
	return found
}

var rooms = []string{"util", "utils", "common", "helper", "helpers", "types", "manager", "impl", "misc"}

// Names checks that no package and no file is named like a room for anything.
func Names(tree *Tree) []Finding {
	var found []Finding
	seen := make(map[string]bool)
	for file := range tree.code {
		stem := strings.TrimSuffix(strings.TrimSuffix(path.Base(file.Path), ".go"), "_test")
		if slices.Contains(rooms, stem) {
			found = append(found, Finding{file.Path, 0, fmt.Sprintf("%q names a room, not a role: name the file after what it does", stem)})
		}
		for dir := file.dir(); dir != "." && !seen[dir]; dir = path.Dir(dir) {
			seen[dir] = true
			if slices.Contains(rooms, path.Base(dir)) {
				found = append(found, Finding{dir, 0, fmt.Sprintf("%q names a room, not a part: move its contents to the nouns they belong to", path.Base(dir))})
			}
		}
	}
	return found
}

// PackageDoc checks that each package that others can import introduces
// itself in doc.go.
func PackageDoc(tree *Tree) []Finding {
	var found []Finding
	seen := make(map[string]bool)
	for file := range tree.code {
		dir := file.dir()
		if seen[dir] || file.test() || file.Go.Name.Name == "main" {
			continue
		}
		seen[dir] = true
		if top, _, _ := strings.Cut(dir, "/"); top == "internal" || slices.Contains(free, top) {
			continue
		}
		name := path.Join(dir, "doc.go")
		if doc := tree.file(name); doc == nil || doc.Go.Doc.Text() == "" {
			found = append(found, Finding{name, 0, "missing, or without a package comment: say what the package is for, and how to use it"})
		}
	}
	return found
}

// SkipReason checks that a test that is skipped says why.
func SkipReason(tree *Tree) []Finding {
	var found []Finding
	for file := range tree.code {
		ast.Inspect(file.Go, func(node ast.Node) bool {
			call, ok := node.(*ast.CallExpr)
			if !ok {
				return true
			}
			selector, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			mute := selector.Sel.Name == "SkipNow" && len(call.Args) == 0
			if base, ok := selector.X.(*ast.Ident); ok && slices.Contains([]string{"t", "b", "f", "tb"}, base.Name) && selector.Sel.Name == "Skip" {
				mute = len(call.Args) == 0 || slices.ContainsFunc(call.Args, emptyText)
			}
			if mute {
				found = append(found, Finding{file.Path, file.line(call), "skipped without a reason: say in a sentence what is missing"})
			}
			return true
		})
	}
	return found
}

func emptyText(arg ast.Expr) bool {
	literal, ok := arg.(*ast.BasicLit)
	return ok && len(literal.Value) <= 2
}

// machinePath finds absolute paths of somebody's machine. The names are put
// together here so that this file does not break its own rule.
var machinePath = regexp.MustCompile(`(?:^|[\s"'` + "`" + `(=:,])/(?:` + strings.Join([]string{"home", "Users", "wor" + "k", "far" + "m", "root", "mnt", "workspaces?"}, "|") + `)/[\w.~-]`)

// MachinePaths checks that nothing rests on where a checkout happens to lie.
func MachinePaths(tree *Tree) []Finding {
	var found []Finding
	for _, file := range tree.files {
		if path.Base(file.Path) == "go.sum" {
			continue
		}
		for i, line := range bytes.Split(file.Text, []byte("\n")) {
			if match := machinePath.Find(line); match != nil {
				found = append(found, Finding{file.Path, i + 1, fmt.Sprintf("%q is a path of one machine: derive it from the repository, a flag or the environment", strings.TrimSpace(string(match)))})
			}
		}
	}
	return found
}
