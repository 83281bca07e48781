package lint

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// statement is one SQL text of a store.
type statement struct {
	name    string
	comment string
	text    string
}

// Catalogue returns the page docs/sql/<name>.md for each store and each reader of
// a database's log that is a module of its own: every SQL text in its constants,
// file by file, and its migrations. A person who must allow these statements, or
// tune a database for them, reads this page and no Go.
func Catalogue(tree *Tree) map[string]string {
	pages := make(map[string]string)
	for _, dir := range tree.modules {
		if parent := path.Dir(dir); parent == "store" || parent == "cdc" {
			pages["docs/sql/"+path.Base(dir)+".md"] = tree.cataloguePage(dir)
		}
	}
	return pages
}

func (t *Tree) cataloguePage(dir string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# SQL of %s\n\nWritten by `make sql` from the sources in [%[1]s](../../%[1]s).\nWhat stands in braces is put in when the store is made: quoted names, and parts that are shown by themselves.\n", dir)
	values := t.textConstants(dir)
	users := t.users(dir, values)
	for file := range t.code {
		if file.dir() != dir || file.test() {
			continue
		}
		statements := file.statements(values)
		if len(statements) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n## %s\n", path.Base(file.Path))
		for _, s := range statements {
			fmt.Fprintf(&b, "\n### %s\n\n", s.name)
			if s.comment != "" {
				fmt.Fprintf(&b, "%s\n\n", s.comment)
			}
			if by := slices.Sorted(maps.Keys(users[s.name])); len(by) > 0 {
				fmt.Fprintf(&b, "Used by %s.\n\n", strings.Join(by, ", "))
			}
			fmt.Fprintf(&b, "```sql\n%s\n```\n", strings.Trim(s.text, "\n"))
		}
	}
	for _, file := range t.files {
		if strings.HasPrefix(file.Path, dir+"/") && strings.HasSuffix(file.Path, ".sql") && !file.testdata() {
			fmt.Fprintf(&b, "\n## %s\n\n```sql\n%s\n```\n", strings.TrimPrefix(file.Path, dir+"/"), strings.Trim(string(file.Text), "\n"))
		}
	}
	return b.String()
}

// textConstants evaluates the package's string constants, which may be made of
// one another.
func (t *Tree) textConstants(dir string) map[string]string {
	expressions := make(map[string]ast.Expr)
	for file := range t.code {
		if file.dir() != dir || file.test() {
			continue
		}
		file.constants(func(name string, value ast.Expr, _ string) { expressions[name] = value })
	}
	values := make(map[string]string)
	for progress := true; progress; {
		progress = false
		for name, expression := range expressions {
			if text, ok := textOf(expression, values); ok {
				values[name], progress = text, true
				delete(expressions, name)
			}
		}
	}
	return values
}

func textOf(expression ast.Expr, values map[string]string) (string, bool) {
	switch e := expression.(type) {
	case *ast.BasicLit:
		if e.Kind != token.STRING {
			return "", false
		}
		text, err := strconv.Unquote(e.Value)
		return text, err == nil
	case *ast.Ident:
		text, ok := values[e.Name]
		return text, ok
	case *ast.ParenExpr:
		return textOf(e.X, values)
	case *ast.BinaryExpr:
		left, ok := textOf(e.X, values)
		right, also := textOf(e.Y, values)
		return left + right, ok && also && e.Op == token.ADD
	}
	return "", false
}

// constants yields the constants of a file, also those inside functions, with
// their comments.
func (f *File) constants(yield func(name string, value ast.Expr, comment string)) {
	ast.Inspect(f.Go, func(node ast.Node) bool {
		decl, ok := node.(*ast.GenDecl)
		if !ok || decl.Tok != token.CONST {
			return true
		}
		for _, spec := range decl.Specs {
			one := spec.(*ast.ValueSpec)
			comment := cmp.Or(one.Doc.Text(), one.Comment.Text())
			if !decl.Lparen.IsValid() {
				comment = cmp.Or(comment, decl.Doc.Text())
			}
			for i, name := range one.Names {
				if i < len(one.Values) {
					yield(name.Name, one.Values[i], strings.TrimSpace(comment))
				}
			}
		}
		return true
	})
}

var sqlText = regexp.MustCompile(`^\s*(?:--[^\n]*\n\s*)*(?:SELECT|INSERT|UPDATE|DELETE|WITH|VALUES|MERGE|LOCK|SET|CREATE|ALTER|DROP|GRANT|PRAGMA|ANALYZE|VACUUM)\s`)

func (f *File) statements(values map[string]string) []statement {
	var all []statement
	f.constants(func(name string, _ ast.Expr, comment string) {
		if text := values[name]; sqlText.MatchString(text) {
			all = append(all, statement{name: name, comment: comment, text: text})
		}
	})
	return all
}

// users returns for each constant the functions that mention it.
func (t *Tree) users(dir string, values map[string]string) map[string]map[string]bool {
	users := make(map[string]map[string]bool)
	for file := range t.code {
		if file.dir() != dir || file.test() {
			continue
		}
		for _, decl := range file.Go.Decls {
			function, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			ast.Inspect(function, func(node ast.Node) bool {
				if name, ok := node.(*ast.Ident); ok && values[name.Name] != "" {
					if users[name.Name] == nil {
						users[name.Name] = make(map[string]bool)
					}
					users[name.Name][function.Name.Name] = true
				}
				return true
			})
		}
	}
	return users
}
