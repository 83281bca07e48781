package config

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/waybillhq/waybill"
)

// decode reads YAML strictly into c. Its errors name file, line and key, and
// never repeat the file's text: a line may hold a secret.
func decode(file string, text []byte, c *Config) error {
	tree, err := parser.ParseBytes(text, 0)
	if err != nil {
		return yamlError(file, err)
	}
	if len(tree.Docs) > 1 {
		return &waybill.Error{Op: "read configuration", Key: file, Err: errors.New("more than one YAML document")}
	}
	if len(tree.Docs) == 0 || tree.Docs[0].Body == nil {
		return nil
	}
	w := walker{file: file}
	w.walk(tree.Docs[0].Body, reflect.TypeFor[Config](), "")
	if len(w.errs) > 0 {
		return errors.Join(w.errs...)
	}
	if err := yaml.UnmarshalWithOptions(text, c, yaml.Strict()); err != nil {
		return yamlError(file, err)
	}
	return nil
}

// yamlError keeps the message and the line of a YAML error.
func yamlError(file string, err error) error {
	var located yaml.Error
	if !errors.As(err, &located) || located.GetToken() == nil {
		// Only the kind of failure may be told: the text is not known to be free of secrets.
		return &waybill.Error{Op: "read configuration", Key: file, Err: errors.New("not a valid YAML file")}
	}
	message := located.GetMessage()
	if value := located.GetToken().Value; value != "" {
		message = strings.ReplaceAll(message, value, "...")
	}
	return &waybill.Error{Op: "read configuration", Key: fmt.Sprintf("%s:%d", file, located.GetToken().Position.Line), Err: errors.New(message)}
}

// walker compares the keys of a YAML tree with the fields of the configuration.
type walker struct {
	file string
	errs []error
}

func (w *walker) fail(node ast.Node, hint, format string, args ...any) {
	place := fmt.Sprintf("%s:%d", w.file, node.GetToken().Position.Line)
	w.errs = append(w.errs, &waybill.Error{Op: "read configuration", Key: place, Hint: hint, Err: fmt.Errorf(format, args...)})
}

func (w *walker) walk(node ast.Node, t reflect.Type, path string) {
	var entries []*ast.MappingValueNode
	switch n := node.(type) {
	case *ast.MappingNode:
		entries = n.Values
	case *ast.MappingValueNode:
		entries = []*ast.MappingValueNode{n}
	case *ast.NullNode:
		return
	default:
		if t.Kind() == reflect.Struct || t.Kind() == reflect.Map {
			w.fail(node, "", "%s must be a mapping of names to values", orRoot(path))
		} else if err := scalarFits(node, t); err != nil {
			w.fail(node, "", "%s: %w", path, err)
		}
		return
	}
	for _, entry := range entries {
		w.entry(entry, t, path)
	}
}

func (w *walker) entry(entry *ast.MappingValueNode, t reflect.Type, path string) {
	key := entry.Key.GetToken().Value
	full := join(path, key)
	switch t.Kind() {
	case reflect.Map:
		w.walk(entry.Value, t.Elem(), full)
	case reflect.Struct:
		field, ok := fieldNamed(t, key)
		if !ok {
			w.fail(entry.Key, suggest(key, fieldNames(t)), "unknown key %s", full)
			return
		}
		if kind := field.Tag.Get("secret"); kind != "" && len(secretsIn(entry.Value.GetToken().Value)) > 0 {
			w.fail(entry.Key, fmt.Sprintf("give it by %s or by %s_file", variable(full), full), "%s holds a secret, which does not belong in this file", full)
		}
		w.walk(entry.Value, field.Type, full)
	default:
		w.fail(entry.Key, "", "%s takes a single value", orRoot(path))
	}
}

func fieldNamed(t reflect.Type, name string) (reflect.StructField, bool) {
	for i := range t.NumField() {
		if t.Field(i).Tag.Get("yaml") == name {
			return t.Field(i), true
		}
	}
	return reflect.StructField{}, false
}

func fieldNames(t reflect.Type) []string {
	names := make([]string, t.NumField())
	for i := range names {
		names[i] = t.Field(i).Tag.Get("yaml")
	}
	return names
}

// suggest names the known name that is nearest to a mistyped one, or all of
// them. The only one that begins with what was written is nearest of all.
func suggest(name string, known []string) string {
	var longer []string
	for _, k := range known {
		if strings.HasPrefix(k, name) {
			longer = append(longer, k)
		}
	}
	if name != "" && len(longer) == 1 {
		return "did you mean " + longer[0] + "?"
	}
	best, distance := "", len(name)/2+1
	for _, k := range known {
		if d := editDistance(name, k); d < distance {
			best, distance = k, d
		}
	}
	if best != "" {
		return "did you mean " + best + "?"
	}
	known = slices.Sorted(slices.Values(known))
	return "known here: " + strings.Join(known, ", ")
}

// editDistance is Levenshtein's, with one row kept.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			substitute := diagonal
			if a[i] != b[j] {
				substitute++
			}
			diagonal = row[j+1]
			row[j+1] = min(substitute, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func orRoot(path string) string {
	if path == "" {
		return "the file"
	}
	return path
}
