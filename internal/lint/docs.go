package lint

import (
	"fmt"
	"go/ast"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// page is a Markdown file taken apart.
type page struct {
	*File
	headings []int // levels, in order
	anchors  []string
	fences   []fence
	links    []link
}

type fence struct {
	language string
	text     string
	snippet  string // what the marker above it says
	line     int
}

type link struct {
	target string
	line   int
}

func (t *Tree) pages(yield func(page) bool) {
	for _, file := range t.files {
		if strings.HasSuffix(file.Path, ".md") && !file.testdata() && !yield(readPage(file)) {
			return
		}
	}
}

var (
	linkPattern   = regexp.MustCompile(`\]\(([^)\s]+)\)|(?:src|srcset|href)="([^"]+)"`)
	markerPattern = regexp.MustCompile(`^<!-- snippet: (.+) -->$`)
)

func readPage(file *File) page {
	p := page{File: file}
	var open *fence
	marker := ""
	for i, line := range strings.Split(string(file.Text), "\n") {
		language, mark := strings.CutPrefix(line, "```")
		switch {
		case mark && open == nil:
			open = &fence{language: language, snippet: marker, line: i + 1}
			marker = ""
		case mark:
			p.fences = append(p.fences, *open)
			open = nil
		case open != nil:
			open.text += line + "\n"
		case markerPattern.MatchString(line):
			marker = markerPattern.FindStringSubmatch(line)[1]
		case strings.HasPrefix(line, "#"):
			title := strings.TrimLeft(line, "#")
			p.headings = append(p.headings, len(line)-len(title))
			p.anchors = append(p.anchors, anchor(title))
		default:
			for _, match := range linkPattern.FindAllStringSubmatch(line, -1) {
				p.links = append(p.links, link{match[1] + match[2], i + 1})
			}
		}
	}
	return p
}

// anchor returns what the hosting site makes of a heading for links to it.
func anchor(title string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}, strings.TrimSpace(title))
}

// Links checks that what a page points to inside the repository is there, and
// the heading too where a link names one.
func Links(tree *Tree) []Finding {
	var found []Finding
	anchors := make(map[string][]string)
	for p := range tree.pages {
		anchors[p.Path] = p.anchors
	}
	for p := range tree.pages {
		for _, one := range p.links {
			target, heading, named := strings.Cut(one.target, "#")
			if strings.Contains(target, ":") {
				continue
			}
			name := p.Path
			if target != "" {
				name = path.Join(p.dir(), target)
			}
			if known, isPage := anchors[name]; isPage && named && !slices.Contains(known, heading) {
				found = append(found, Finding{p.Path, one.line, fmt.Sprintf("%s has no heading #%s: mend the link", name, heading)})
				continue
			}
			if !slices.ContainsFunc(tree.files, func(f *File) bool { return f.Path == name || strings.HasPrefix(f.Path, name+"/") }) {
				found = append(found, Finding{p.Path, one.line, fmt.Sprintf("%s does not exist: mend the link or write the page", one.target)})
			}
		}
	}
	return found
}

// Twins checks that a page and its Chinese edition have the same structure:
// headings of the same levels in the same order, and the same code blocks. The
// README, the guide and the runbook must have one.
func Twins(tree *Tree) []Finding {
	const suffix = ".zh-CN.md"
	var found []Finding
	pages := make(map[string]page)
	for p := range tree.pages {
		pages[p.Path] = p
	}
	for name := range pages {
		stem, english := strings.CutSuffix(name, ".md")
		read := name == "README.md" || strings.HasPrefix(name, "docs/guide/") || strings.HasPrefix(name, "docs/runbook/")
		if _, ok := pages[stem+suffix]; english && read && !strings.HasSuffix(name, suffix) && !ok {
			found = append(found, Finding{stem + suffix, 0, "missing: README, guide and runbook are kept in English and in Chinese"})
		}
	}
	for name, translated := range pages {
		stem, ok := strings.CutSuffix(name, suffix)
		if !ok {
			continue
		}
		original, ok := pages[stem+".md"]
		if !ok {
			found = append(found, Finding{name, 0, fmt.Sprintf("translates %s.md, which does not exist", stem)})
			continue
		}
		if !slices.Equal(original.headings, translated.headings) {
			found = append(found, Finding{name, 0, fmt.Sprintf("heading levels %v, but %s.md has %v: say the same in both", translated.headings, stem, original.headings)})
		}
		if len(original.fences) != len(translated.fences) {
			found = append(found, Finding{name, 0, fmt.Sprintf("%d code blocks, but %s.md has %d: say the same in both", len(translated.fences), stem, len(original.fences))})
			continue
		}
		for i, block := range translated.fences {
			if block.text != original.fences[i].text {
				found = append(found, Finding{name, block.line, fmt.Sprintf("differs from the code block in line %d of %s.md: copy it", original.fences[i].line, stem)})
			}
		}
	}
	return found
}

// programs are the languages of code that must be taken from a file, where
// something compiles or runs it.
var programs = []string{"go", "java", "php", "python"}

// Snippets checks that programs in the README and the guide are taken from a
// file that is compiled or run. The line above such a block reads
//
//	<!-- snippet: path/to/file.go Name -->
//
// and the block is the declaration of the function Name, without its comment;
// without a name it is the whole file.
func Snippets(tree *Tree) []Finding {
	var found []Finding
	for p := range tree.pages {
		guide := strings.HasPrefix(p.Path, "README") || strings.HasPrefix(p.Path, "docs/guide/")
		for _, block := range p.fences {
			if block.snippet == "" {
				if guide && slices.Contains(programs, block.language) {
					found = append(found, Finding{p.Path, block.line, "code that nothing compiles: put it into examples and name it above the block, <!-- snippet: file.go Name -->"})
				}
				continue
			}
			name, function, _ := strings.Cut(block.snippet, " ")
			if function == "" {
				if file := tree.file(name); file == nil {
					found = append(found, Finding{p.Path, block.line, fmt.Sprintf("no file %q: mend the marker", name)})
				} else if string(file.Text) != block.text {
					found = append(found, Finding{p.Path, block.line, fmt.Sprintf("differs from %s: copy it from there", name)})
				}
				continue
			}
			if source, ok := tree.function(name, function); !ok {
				found = append(found, Finding{p.Path, block.line, fmt.Sprintf("no function %q in %q: mend the marker", function, name)})
			} else if source != block.text {
				found = append(found, Finding{p.Path, block.line, fmt.Sprintf("differs from %s in %s: copy it from there", function, name)})
			}
		}
	}
	return found
}

func (t *Tree) function(name, function string) (source string, ok bool) {
	file := t.file(name)
	if file == nil || file.Go == nil {
		return "", false
	}
	for _, decl := range file.Go.Decls {
		if f, isFunc := decl.(*ast.FuncDecl); isFunc && f.Name.Name == function {
			from, to := file.set.Position(f.Type.Pos()).Offset, file.set.Position(f.End()).Offset
			return string(file.Text[from:to]) + "\n", true
		}
	}
	return "", false
}

var (
	makePattern   = regexp.MustCompile("(?:^|`|\\$ )make ([a-z][a-z-]*)")
	targetPattern = regexp.MustCompile(`(?m)^([a-z][a-z-]*):`)
)

// Targets checks that the make targets that pages and CI name exist.
func Targets(tree *Tree) []Finding {
	makefile := tree.file("Makefile")
	if makefile == nil {
		return []Finding{{"Makefile", 0, "missing: the README's commands are its targets"}}
	}
	targets := make(map[string]bool)
	for _, match := range targetPattern.FindAllStringSubmatch(string(makefile.Text), -1) {
		targets[match[1]] = true
	}
	var found []Finding
	for _, file := range tree.files {
		if !strings.HasSuffix(file.Path, ".md") && !strings.HasPrefix(file.Path, ".ci/") || file.testdata() {
			continue
		}
		for i, line := range strings.Split(string(file.Text), "\n") {
			for _, match := range makePattern.FindAllStringSubmatch(line, -1) {
				if !targets[match[1]] {
					found = append(found, Finding{file.Path, i + 1, fmt.Sprintf("make %s is no target of the Makefile", match[1])})
				}
			}
		}
	}
	return found
}
