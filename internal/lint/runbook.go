package lint

import (
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"slices"
	"strconv"
	"strings"
)

// runbook is the folder of pages for the person on call.
const runbook = "docs/runbook"

// Runbook checks that each reason that package ops can give has a page in the
// runbook, that each of the doctor's examinations is named in its table, and that
// there is no page for what nobody says any more.
func Runbook(tree *Tree) []Finding {
	index := tree.file(path.Join(runbook, "README.md"))
	if index == nil {
		return []Finding{{path.Join(runbook, "README.md"), 0, "missing: whoever is called needs a list of reasons"}}
	}
	var found []Finding
	for file := range tree.code {
		if file.dir() != "ops" || file.test() {
			continue
		}
		file.reasons(func(name string, line int) {
			if page := path.Join(runbook, name+".md"); tree.file(page) == nil {
				found = append(found, Finding{file.Path, line, fmt.Sprintf("the reason %q has no page: write %s and list it in %s", name, page, index.Path)})
			}
		})
		file.texts("Check", func(name string, line int) {
			if !strings.Contains(string(index.Text), "`"+name+"`") {
				found = append(found, Finding{file.Path, line, fmt.Sprintf("the examination %q is not in the table of %s", name, index.Path)})
			}
		})
	}
	for p := range tree.pages {
		if name := path.Base(p.Path); p.dir() == runbook && p.Path != index.Path && !strings.HasSuffix(name, ".zh-CN.md") && !strings.Contains(string(index.Text), "]("+name+")") {
			found = append(found, Finding{p.Path, 0, fmt.Sprintf("is not listed in %s", index.Path)})
		}
	}
	return found
}

// reasons yields the texts of constants named Cause..., and of literals given
// to causes.add as the name.
func (f *File) reasons(yield func(name string, line int)) {
	f.texts("Cause", yield)
	ast.Inspect(f.Go, func(node ast.Node) bool {
		call, ok := node.(*ast.CallExpr)
		if !ok {
			return true
		}
		if selector, ok := call.Fun.(*ast.SelectorExpr); ok && selector.Sel.Name == "add" && len(call.Args) > 3 {
			if name, ok := text(call.Args[1]); ok {
				yield(name, f.line(call))
			}
		}
		return true
	})
}

// texts yields the texts of the constants whose names begin so.
func (f *File) texts(prefix string, yield func(value string, line int)) {
	for _, decl := range f.Go.Decls {
		group, ok := decl.(*ast.GenDecl)
		if !ok || group.Tok != token.CONST {
			continue
		}
		for _, spec := range group.Specs {
			values, ok := spec.(*ast.ValueSpec)
			if !ok || !slices.ContainsFunc(values.Names, func(n *ast.Ident) bool { return strings.HasPrefix(n.Name, prefix) }) {
				continue
			}
			for _, value := range values.Values {
				if name, ok := text(value); ok {
					yield(name, f.line(value))
				}
			}
		}
	}
}

func text(expr ast.Expr) (string, bool) {
	literal, ok := expr.(*ast.BasicLit)
	if !ok || literal.Kind != token.STRING {
		return "", false
	}
	value, err := strconv.Unquote(literal.Value)
	return value, err == nil
}
