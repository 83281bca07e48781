package lint

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
)

var update = flag.Bool("update", false, "write docs/sql again")

// rules are all that the tree is held to. Each has its fixtures in
// rules_test.go.
var rules = []struct {
	name  string
	check func(*Tree) []Finding
}{
	{"import law", ImportLaw},
	{"file length", FileLength},
	{"clock", Clock},
	{"names", Names},
	{"package doc", PackageDoc},
	{"skip reason", SkipReason},
	{"machine paths", MachinePaths},
	{"modules", Modules},
	{"pins", Pins},
	{"links", Links},
	{"twins", Twins},
	{"snippets", Snippets},
	{"targets", Targets},
	{"runbook", Runbook},
	{"records", Records},
}

func TestHouse(t *testing.T) {
	tree, err := ReadTree(os.DirFS(repository(t)))
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range rules {
		t.Run(rule.name, func(t *testing.T) {
			for _, finding := range rule.check(tree) {
				t.Error(finding)
			}
		})
	}
}

// TestCatalogue compares docs/sql with the stores' sources; -update writes it.
func TestCatalogue(t *testing.T) {
	root := repository(t)
	tree, err := ReadTree(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range Catalogue(tree) {
		file := filepath.Join(root, filepath.FromSlash(name))
		if *update {
			if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(want), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(file); err != nil || string(got) != want {
			t.Errorf("%s is not what the sources say: run make sql (%v)", name, err)
		}
	}
}

func TestCatalogueFindsStatements(t *testing.T) {
	tree, err := ReadTree(fstest.MapFS{
		"store/x/go.mod": {Data: []byte("module x\n")},
		"store/x/a.go": {Data: []byte("package x\n\nconst columns = `id, ` + `lane`\n\n// fetch reads.\nconst fetch = `SELECT ` + columns + ` FROM {event}`\n\n" +
			"const name = `x`\n\nfunc Fetch() { use(fetch) }\n")},
		"store/x/a_test.go":            {Data: []byte("package x\n\nconst other = `SELECT 1`\n")},
		"store/x/migrations/001_a.sql": {Data: []byte("CREATE TABLE a (id INTEGER);\n")},
		"store/memstore/a.go":          {Data: []byte("package memstore\n")},
	})
	if err != nil {
		t.Fatal(err)
	}
	pages := Catalogue(tree)
	page, ok := pages["docs/sql/x.md"]
	if !ok || len(pages) != 1 {
		t.Fatalf("pages %v, want docs/sql/x.md alone", pages)
	}
	for _, want := range []string{
		"## a.go\n\n### fetch\n\nfetch reads.\n\nUsed by Fetch.\n\n```sql\nSELECT id, lane FROM {event}\n```\n",
		"## migrations/001_a.sql\n\n```sql\nCREATE TABLE a (id INTEGER);\n```\n",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("lacks\n%s\nin\n%s", want, page)
		}
	}
	if strings.Contains(page, "other") || strings.Contains(page, "### name") {
		t.Errorf("has what is no statement of the store:\n%s", page)
	}
}

// TestCoreRequiresNothing asks the go command itself, because a user's go.mod
// gets what it resolves, tests included.
func TestCoreRequiresNothing(t *testing.T) {
	if got, want := buildList(t, repository(t)), modulePath; got != want {
		t.Errorf("the core must require no module; go list -m all prints:\n%s", got)
	}
}

func TestBuildListShowsARequirement(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module example.com/a\n\ngo 1.26\n\nrequire example.com/b v0.0.0\n\nreplace example.com/b => ./b\n")
	write("a.go", "package a\n\nimport _ \"example.com/b\"\n")
	write("b/go.mod", "module example.com/b\n\ngo 1.26\n")
	write("b/b.go", "package b\n")
	if got := buildList(t, dir); !strings.Contains(got, "example.com/b") {
		t.Errorf("a requirement went unseen: %q", got)
	}
}

func buildList(t *testing.T, dir string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), "go", "list", "-m", "all")
	command.Dir = dir
	command.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=readonly")
	out, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("go list -m all: %v\n%s", err, out)
	}
	return strings.TrimSpace(string(out))
}

func repository(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}
