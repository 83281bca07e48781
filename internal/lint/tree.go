package lint

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

const modulePath = "github.com/waybillhq/waybill"

// Finding is one place that breaks a rule.
type Finding struct {
	Path string
	Line int // 0 when the whole file, or its absence, is meant
	Text string
}

// String returns "path:line: text".
func (f Finding) String() string {
	if f.Line == 0 {
		return fmt.Sprintf("%s: %s", f.Path, f.Text)
	}
	return fmt.Sprintf("%s:%d: %s", f.Path, f.Line, f.Text)
}

// Tree is the checked source tree, read once.
type Tree struct {
	files   []*File
	modules []string // directories that have a go.mod, "." for the root
}

// File is one text file of the tree.
type File struct {
	Path      string
	Text      []byte
	Go        *ast.File // nil when it is not Go
	Generated bool
	set       *token.FileSet
}

// ReadTree reads all text files below root, passing over what git does not
// keep and what tests keep as data.
func ReadTree(root fs.FS) (*Tree, error) {
	tree := &Tree{}
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) { // removed while we walk
				return nil
			}
			return err
		}
		if entry.IsDir() {
			if slices.Contains([]string{".git", ".cache", "bin", "node_modules"}, entry.Name()) {
				return fs.SkipDir
			}
			return nil
		}
		if !entry.Type().IsRegular() {
			return nil
		}
		return tree.read(root, name)
	})
	return tree, err
}

func (t *Tree) read(root fs.FS, name string) error {
	text, err := fs.ReadFile(root, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if bytes.IndexByte(text, 0) >= 0 || !utf8.Valid(text) {
		return nil
	}
	file := &File{Path: name, Text: text}
	if path.Base(name) == "go.mod" && !file.testdata() {
		t.modules = append(t.modules, path.Dir(name))
	}
	if strings.HasSuffix(name, ".go") && !file.testdata() {
		file.set = token.NewFileSet()
		file.Go, err = parser.ParseFile(file.set, name, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return fmt.Errorf("parse %s: %w", name, err)
		}
		file.Generated = ast.IsGenerated(file.Go)
	}
	t.files = append(t.files, file)
	return nil
}

func (f *File) testdata() bool {
	return slices.Contains(strings.Split(path.Dir(f.Path), "/"), "testdata")
}

func (f *File) test() bool { return strings.HasSuffix(f.Path, "_test.go") }

func (f *File) dir() string { return path.Dir(f.Path) }

func (f *File) line(node ast.Node) int { return f.set.Position(node.Pos()).Line }

// code yields the Go files that people write.
func (t *Tree) code(yield func(*File) bool) {
	for _, file := range t.files {
		if file.Go != nil && !file.Generated && !yield(file) {
			return
		}
	}
}

func (t *Tree) file(name string) *File {
	for _, file := range t.files {
		if file.Path == name {
			return file
		}
	}
	return nil
}

// module returns the directory of the module that a file belongs to.
func (t *Tree) module(name string) string {
	for dir := path.Dir(name); ; dir = path.Dir(dir) {
		if slices.Contains(t.modules, dir) || dir == "." {
			return dir
		}
	}
}

// imported is one import of a file.
type imported struct {
	path string
	name string // as written, may be empty
	line int
}

func (f *File) imports() []imported {
	var all []imported
	for _, spec := range f.Go.Imports {
		target, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue
		}
		one := imported{path: target, line: f.line(spec)}
		if spec.Name != nil {
			one.name = spec.Name.Name
		}
		all = append(all, one)
	}
	return all
}

// uses calls yield for each mention of pkg.Name in the file.
func (f *File) uses(pkg string, yield func(name string, line int)) {
	local := ""
	for _, one := range f.imports() {
		if one.path == pkg {
			local = path.Base(pkg)
			if one.name != "" {
				local = one.name
			}
		}
	}
	if local == "" {
		return
	}
	ast.Inspect(f.Go, func(node ast.Node) bool {
		selector, ok := node.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if base, ok := selector.X.(*ast.Ident); ok && base.Name == local {
			yield(selector.Sel.Name, f.line(selector))
		}
		return true
	})
}
