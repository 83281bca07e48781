package guide

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	inlineCode = regexp.MustCompile("`(waybill [^`]+)`")
	aVerb      = regexp.MustCompile(`^[a-z]+$`)
	aFlag      = regexp.MustCompile(`^--[a-z-]+`)
)

// Pages name commands between backquotes, with words in capitals to be filled
// in. Each must exist, with its flags.
func TestNamedCommandsExist(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(t.TempDir(), "waybill")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "./cmd/waybill")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	helps := make(map[string]string) // empty: there is no such command
	help := func(verbs []string) string {
		name := strings.Join(verbs, " ")
		if _, known := helps[name]; !known {
			out, err := exec.CommandContext(t.Context(), binary, append(slices.Clone(verbs), "--help")...).Output()
			if err != nil || len(out) == 0 {
				out = nil
			}
			helps[name] = string(out)
		}
		return helps[name]
	}
	commands := 0
	for _, page := range pagesOf(t, root) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range inlineCode.FindAllStringSubmatch(string(text), -1) {
			commands++
			words := strings.Fields(found[1])[1:]
			verbs := 0
			for verbs < min(len(words), 3) && aVerb.MatchString(words[verbs]) {
				verbs++
			}
			shown := help(words[:verbs])
			if shown == "" && verbs > 1 {
				shown = help(words[:verbs-1]) // the last was an argument
			}
			if shown == "" {
				t.Errorf("%s: %s: there is no such command", filepath.Base(page), found[1])
				continue
			}
			for _, word := range words {
				if flag := aFlag.FindString(word); flag != "" && !strings.Contains(shown, flag) {
					t.Errorf("%s: %s: there is no flag %s", filepath.Base(page), found[1], flag)
				}
			}
		}
	}
	if commands < 50 {
		t.Errorf("found %d commands: did their form change?", commands)
	}
}

// pagesOf returns the pages for users.
func pagesOf(t *testing.T, root string) []string {
	t.Helper()
	var pages []string
	for _, pattern := range []string{"README*.md", "docs/guide/*.md", "docs/runbook/*.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, found...)
	}
	return pages
}

var (
	aSetting = regexp.MustCompile("`((store|broker|relay|cleanup|serve|status|log)\\.[a-z_]+)(?:: [^`]*)?`")
	aSection = regexp.MustCompile(`^([a-z]+):`)
	aName    = regexp.MustCompile(`^  #?([a-z_]+):`)
)

// Pages name settings as section.name. Each must be in the file that waybill
// init writes.
func TestNamedSettingsExist(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	template, err := os.ReadFile(filepath.Join(root, "cmd/waybill/internal/config/template.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	known, section := make(map[string]bool), ""
	for line := range strings.Lines(string(template)) {
		if found := aSection.FindStringSubmatch(line); found != nil {
			section = found[1]
		} else if found := aName.FindStringSubmatch(line); found != nil {
			known[section+"."+found[1]] = true
		}
	}
	settings := 0
	for _, page := range pagesOf(t, root) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range aSetting.FindAllStringSubmatch(string(text), -1) {
			settings++
			if !known[found[1]] {
				t.Errorf("%s: there is no setting %s", filepath.Base(page), found[1])
			}
		}
	}
	if settings < 20 {
		t.Errorf("found %d settings: did their form change?", settings)
	}
}
