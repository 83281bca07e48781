package lint

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

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
