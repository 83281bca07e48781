package main

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/waybillhq/waybill/cmd/waybill/internal/bench"
	"github.com/waybillhq/waybill/cmd/waybill/internal/lab"
	"github.com/waybillhq/waybill/ops"
	"github.com/waybillhq/waybill/reconcile"
)

// answers are what commands print with --json.
var answers = []struct {
	commands string
	value    any
}{
	{"status", ops.Status{}},
	{"trace", ops.TraceResult{}},
	{"dead list", deadPage{}},
	{"dead show", ops.EventView{}},
	{"held list", heldPage{}},
	{"held show", ops.HeldView{}},
	{"dead retry, dead skip, held retry, held skip, held resolve, held release, doctor --requeue", resultsView{}},
	{"replay", replayView{}},
	{"cleanup", ops.Removed{}},
	{"doctor", ops.Diagnosis{}},
	{"audit list", auditPage{}},
	{"delivery show", ops.DeliveryStatus{}},
	{"delivery switch", switchView{}},
	{"config", configView{}},
	{"schema check", schemaChecked{}},
	{"GET /healthz of serve", healthView{}},
	{"reconcile run, reconcile import-candidates", reconciled{}},
	{"reconcile export-plan", exportedPlan{}},
	{"reconcile status", reconcileStatus{}},
	{"reconcile runs", runsPage{}},
	{"reconcile findings list, reconcile findings ignore, reconcile findings await, reconcile findings reopen", findingsPage{}},
	{"reconcile findings show", reconcile.FindingRecord{}},
	{"reconcile explain", reconcile.Story{}},
	{"reconcile rebuild", reconcile.Rebuilt{}},
	{"reconcile plan, reconcile plans ID, reconcile approve", reconcile.Plan{}},
	{"reconcile plans", plansPage{}},
	{"reconcile apply", reconcile.Applied{}},
	{"lab loans", lab.Result{}},
	{"lab pairs", lab.Pairs{}},
	{"bench append", bench.AppendReport{}},
	{"bench relay", bench.RelayReport{}},
	{"bench latency", bench.LatencyReport{}},
	{"bench scale", bench.ScaleReport{}},
	{"bench reconcile", bench.ReconcileReport{}},
	{"bench consume", bench.ConsumeReport{}},
}

func TestJSONReference(t *testing.T) {
	r := jsonReference{comments: fieldComments(t, ".", "../../ops", "../../relay", "../../reconcile", "../../schema", "internal/lab", "internal/bench"), done: make(map[reflect.Type]bool)}
	r.text.WriteString("# JSON of the commands\n\nThis page is generated from the types (`make docs`).\n\n")
	r.text.WriteString("Fields keep their names and meanings. New ones may come, so readers must pass over what they do not know. " +
		"Times are RFC 3339 in UTC; ages and pauses are seconds. A field marked *may be absent* is left out where it is empty; lists are never null. " +
		"With `--json` an error still goes to standard error as text, and the exit codes are the same.\n")
	for _, a := range answers {
		fmt.Fprintf(&r.text, "\n## %s\n", a.commands)
		r.object(reflect.TypeOf(a.value), "")
		for len(r.next) > 0 {
			next := r.next[0]
			r.next = r.next[1:]
			r.object(next, next.Name())
		}
	}
	golden(t, "cli-json.md", r.text.String())
}

type jsonReference struct {
	text     strings.Builder
	comments map[string]string // by Type.Field
	done     map[reflect.Type]bool
	next     []reflect.Type
}

func (r *jsonReference) object(t reflect.Type, title string) {
	if title != "" {
		if r.done[t] {
			return
		}
		r.done[t] = true
		fmt.Fprintf(&r.text, "\n`%s`:\n", title)
	}
	r.text.WriteString("\n| field | type | meaning |\n| --- | --- | --- |\n")
	r.fields(t)
}

func (r *jsonReference) fields(t reflect.Type) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			r.fields(f.Type)
			continue
		case name == "-" || !f.IsExported():
			continue
		}
		meaning := r.comments[t.Name()+"."+f.Name]
		if options != "" {
			meaning = strings.TrimSpace(meaning + " *(may be absent)*")
		}
		fmt.Fprintf(&r.text, "| `%s` | %s | %s |\n", name, r.kind(f.Type), strings.ReplaceAll(meaning, "|", "\\|"))
	}
}

func (r *jsonReference) kind(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return "time"
	case t == reflect.TypeFor[json.RawMessage]():
		return "any JSON"
	case t == reflect.TypeFor[reconcile.Value]():
		return "text, or null for NULL"
	case t == reflect.TypeFor[[]byte]():
		return "base64"
	}
	switch t.Kind() {
	case reflect.Pointer:
		return r.kind(t.Elem())
	case reflect.Slice:
		return "list of " + r.kind(t.Elem())
	case reflect.Map:
		return "object of " + r.kind(t.Elem())
	case reflect.Struct:
		if !r.done[t] {
			r.next = append(r.next, t)
		}
		return "`" + t.Name() + "`"
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "text"
	}
	return "number"
}

// fieldComments reads what the sources say of each field.
func fieldComments(t *testing.T, dirs ...string) map[string]string {
	t.Helper()
	comments := make(map[string]string)
	for _, dir := range dirs {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if spec, ok := n.(*ast.TypeSpec); ok {
					readFields(spec, comments)
				}
				return true
			})
		}
	}
	return comments
}

func readFields(spec *ast.TypeSpec, comments map[string]string) {
	fields, ok := spec.Type.(*ast.StructType)
	if !ok {
		return
	}
	for _, f := range fields.Fields.List {
		text := strings.Join(strings.Fields(f.Doc.Text()+" "+f.Comment.Text()), " ")
		for _, name := range f.Names {
			comments[spec.Name.Name+"."+name.Name] = text
		}
	}
}
