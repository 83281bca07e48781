package ops

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// Each name that people are alarmed by has a page that says what to do.
func TestEveryCauseHasAPageInTheRunbook(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "cause.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	pages := 0
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || !strings.HasPrefix(spec.Names[0].Name, "Cause") {
			return true
		}
		name, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		if err != nil {
			t.Fatal(err)
		}
		pages++
		if _, err := os.Stat(filepath.Join("..", "docs", "runbook", name+".md")); err != nil {
			t.Error(err)
		}
		return true
	})
	if pages < 10 {
		t.Errorf("%d causes found", pages)
	}
}

func TestSuggestedCommandsQuoteWhatAShellWouldObey(t *testing.T) {
	for text, want := range map[string]string{
		"O-1001_v3:a/b.c": "O-1001_v3:a/b.c",
		"":                "''",
		"-rf":             "'-rf'",
		"a b":             "'a b'",
		"$(reboot)":       "'$(reboot)'",
		"it's":            `'it'\''s'`,
		"订单":              "'订单'",
	} {
		if got := word(text); got != want {
			t.Errorf("%q: got %s, want %s", text, got, want)
		}
	}
}
