package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/waybillhq/waybill/cmd/waybill/internal/config"
)

var update = flag.Bool("update", false, "write docs/cli.md, docs/config.md and docs/cli-json.md again")

// golden compares a generated page with the one in docs; -update writes it.
func golden(t *testing.T, name, text string) {
	t.Helper()
	file := filepath.Join("..", "..", "docs", name)
	if *update {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(page) == text {
		return
	}
	has, want := strings.Split(string(page), "\n"), strings.Split(text, "\n")
	line := 0
	for line < min(len(has), len(want)) && has[line] == want[line] {
		line++
	}
	has, want = append(has, "(the end)"), append(want, "(the end)")
	t.Errorf("docs/%s is not what the code says; run make docs. Line %d:\n has  %s\n want %s", name, line+1, has[line], want[line])
}

func commandLine(t *testing.T) *kong.Kong {
	t.Helper()
	p, err := newParser(&cli{}, io.Discard, io.Discard, func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// leaves calls visit for each command that does something.
func leaves(node *kong.Node, visit func(*kong.Node)) {
	for _, child := range node.Children {
		switch {
		case child.Hidden:
		case len(child.Children) > 0:
			leaves(child, visit)
		default:
			visit(child)
		}
	}
}

func TestCLIReference(t *testing.T) {
	model := commandLine(t).Model
	var b strings.Builder
	b.WriteString("# Commands\n\nThis page is generated from the command itself (`make docs`).\n\n")
	b.WriteString("Exit codes: 0 all is well, 1 it failed, 2 the command line or the configuration is wrong, 3 it worked and found something that needs a person.\n\n")
	b.WriteString("Every command takes these flags:\n\n" + flagTable(model.Flags))
	leaves(model.Node, func(node *kong.Node) {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n```\n%s\n```\n", strings.TrimPrefix(node.FullPath(), "waybill "), node.Help, node.Summary())
		if text := detail(node.Detail); text != "" {
			b.WriteString("\n" + text)
		}
		for _, p := range node.Positional {
			fmt.Fprintf(&b, "\n`%s`: %s\n", p.Summary(), p.Help)
		}
		if table := flagTable(node.Flags); table != "" {
			b.WriteString("\n" + table)
		}
	})
	golden(t, "cli.md", b.String())
}

func flagTable(flags []*kong.Flag) string {
	var b strings.Builder
	for _, f := range flags {
		if f.Hidden || f.Name == "help" {
			continue
		}
		if b.Len() == 0 {
			b.WriteString("| flag | meaning |\n| --- | --- |\n")
		}
		name := "--" + f.Name
		if !f.IsBool() {
			name += "=" + f.FormatPlaceHolder()
		}
		if f.Short != 0 {
			name = fmt.Sprintf("-%c, %s", f.Short, name)
		}
		fmt.Fprintf(&b, "| `%s` | %s |\n", strings.ReplaceAll(name, "|", "\\|"), strings.ReplaceAll(f.Help, "|", "\\|"))
	}
	return b.String()
}

// detail turns what --help shows into Markdown: indented lines are code.
func detail(text string) string {
	var b strings.Builder
	code := false
	fence := func(now bool) {
		if now != code {
			b.WriteString("```\n")
			code = now
		}
	}
	lines := strings.Split(strings.TrimSpace(text), "\n")
	for i, line := range lines {
		switch {
		case strings.HasPrefix(line, "\t"):
			fence(true)
		case line == "" && i+1 < len(lines) && strings.HasPrefix(lines[i+1], "\t") && code:
		default:
			fence(false)
		}
		if strings.TrimSpace(text) != "" {
			b.WriteString(strings.TrimPrefix(line, "\t") + "\n")
		}
	}
	fence(false)
	if strings.TrimSpace(text) == "" {
		return ""
	}
	return b.String()
}

// What --help offers to copy must be understood by the command.
func TestEveryCommandHasExamplesThatParse(t *testing.T) {
	leaves(commandLine(t).Model.Node, func(node *kong.Node) {
		_, examples, found := strings.Cut(node.Detail, "Examples:\n")
		if !found || !strings.Contains(examples, "waybill") {
			t.Errorf("%s has no examples", node.FullPath())
		}
		for _, line := range strings.Split(examples, "\n") {
			words := shellWords(line)
			if len(words) == 0 {
				continue
			}
			if words[0] != "waybill" {
				t.Errorf("%s: %q is not ours", node.FullPath(), line)
				continue
			}
			if _, err := commandLine(t).Parse(words[1:]); err != nil {
				t.Errorf("%s: %v", line, err)
			}
		}
	})
}

// shellWords splits a line as a shell would, as far as examples go: double
// quotes, and the end at a redirection or an operator.
func shellWords(line string) []string {
	var words []string
	var word strings.Builder
	quoted, some := false, false
	end := func() {
		if some {
			words = append(words, word.String())
		}
		word.Reset()
		some = false
	}
	for _, r := range strings.TrimSpace(line) {
		switch {
		case r == '"':
			quoted, some = !quoted, true
		case quoted:
			word.WriteRune(r)
		case strings.ContainsRune(">|&;", r):
			end()
			return words
		case r == ' ':
			end()
		default:
			word.WriteRune(r)
			some = true
		}
	}
	end()
	return words
}

func TestConfigReference(t *testing.T) {
	golden(t, "config.md", "# Configuration\n\nThis page is generated from the template that `waybill init` writes (`make docs`).\n\n"+configReference(config.Template))
}

// configReference turns the commented template into tables: each setting with
// its variable, its default and its comment.
func configReference(template string) string {
	head, body, _ := strings.Cut(template, "\n\n# Where the outbox is")
	body = "# Where the outbox is" + body
	// The head is one comment whose blank lines part paragraphs.
	var b strings.Builder
	var rest []string
	for _, line := range strings.Split(head, "\n") {
		b.WriteString(strings.TrimPrefix(strings.TrimPrefix(line, "#"), " ") + "\n")
	}
	rest = strings.Split(body, "\n")
	var comment []string
	path := make(map[int]string) // name by indentation
	for _, line := range rest {
		text := strings.TrimSpace(line)
		depth := len(line) - len(strings.TrimLeft(line, " "))
		switch {
		case text == "":
			comment = nil
			continue
		case strings.HasPrefix(text, "# "):
			comment = append(comment, text[2:])
			continue
		}
		name, value, _ := strings.Cut(strings.TrimPrefix(text, "#"), ":")
		path[depth] = name
		var full []string
		for d := 0; d <= depth; d++ {
			if path[d] != "" {
				full = append(full, path[d])
			}
		}
		for d := range path {
			if d > depth {
				delete(path, d)
			}
		}
		setting, value := strings.Join(full, "."), strings.TrimSpace(value)
		said := strings.Join(comment, " ")
		comment = nil
		switch {
		case depth == 0:
			fmt.Fprintf(&b, "\n## %s\n\n%s\n\n| setting | default or example | meaning |\n| --- | --- | --- |\n", name, said)
		case value == "":
			fmt.Fprintf(&b, "| `%s` | | %s |\n", setting, said)
		default:
			fmt.Fprintf(&b, "| `%s` | `%s` | %s |\n", setting, value, said)
		}
	}
	return b.String()
}
