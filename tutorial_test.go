package waybill_test

import (
	"go/parser"
	"go/token"
	"os"
	"strings"
	"testing"
)

// The tutorial shows only code that the compiler has seen: each of its blocks
// stands, line by line, in the examples.
func TestTutorialShowsCompiledCode(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "doc.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	examples, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	compiled := unindent(string(examples))
	blocks := 0
	for block := range strings.SplitSeq(file.Doc.Text(), "\n\n") {
		if !strings.HasPrefix(block, "\t") || strings.Contains(block, "──►") {
			continue // prose, and the picture
		}
		blocks++
		if !strings.Contains(compiled, unindent(block)) {
			t.Errorf("no example has this code:\n%s", block)
		}
	}
	if blocks < 5 {
		t.Errorf("found %d blocks of code: did the layout of doc.go change?", blocks)
	}
}

func unindent(code string) string {
	var b strings.Builder
	for line := range strings.Lines(code) {
		b.WriteString(strings.TrimSpace(line) + "\n")
	}
	return b.String()
}
