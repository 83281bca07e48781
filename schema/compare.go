package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/waybillhq/waybill"
)

// Compare returns what differs between two JSON Schemas, in the order of their
// paths. References within the document, "#/$defs/money", are followed; one to
// another document counts as a rule that can only be the same or another.
func Compare(oldSchema, newSchema []byte) ([]Change, error) {
	c := comparison{under: make(map[[2]string]bool)}
	var err error
	if c.oldRoot, err = parse(oldSchema); err != nil {
		return nil, &waybill.Error{Op: "read schema", Key: "old", Err: err}
	}
	if c.newRoot, err = parse(newSchema); err != nil {
		return nil, &waybill.Error{Op: "read schema", Key: "new", Err: err}
	}
	c.compare("", c.oldRoot, c.newRoot)
	if c.steps > maxSteps {
		return nil, &waybill.Error{Op: "compare schemas", Err: errors.New("their references multiply beyond measure")}
	}
	slices.SortStableFunc(c.changes, func(a, b Change) int { return strings.Compare(a.Path, b.Path) })
	return c.changes, nil
}

func parse(text []byte) (any, error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber() // numbers keep every digit
	var root any
	if err := decoder.Decode(&root); err != nil {
		return nil, err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the schema")
	}
	switch root.(type) {
	case map[string]any, bool:
		return root, nil
	}
	return nil, errors.New("a schema is an object, true or false")
}

type comparison struct {
	oldRoot, newRoot any
	changes          []Change
	under            map[[2]string]bool // pairs of references that are being compared
	steps            int
}

// maxSteps bounds the work on schemas whose references multiply.
const maxSteps = 100_000

func (c *comparison) add(path string, kind Kind, before, after any) {
	c.changes = append(c.changes, Change{
		Path: path, Kind: kind, Breaks: kind != AddedField && kind != WidenedEnum, Old: clip(shown(before)), New: clip(shown(after)),
	})
}

func (c *comparison) compare(path string, before, after any) {
	oldRef, newRef := reference(before), reference(after)
	before, after = resolve(c.oldRoot, before), resolve(c.newRoot, after)
	if oldRef != "" || newRef != "" {
		// A schema that contains itself is looked at once on its way, and one that
		// is used in several places in each of them.
		pair := [2]string{oldRef, newRef}
		if c.under[pair] {
			return
		}
		c.under[pair] = true
		defer delete(c.under, pair)
	}
	if c.steps++; c.steps > maxSteps {
		return
	}
	x, oldIs := before.(map[string]any)
	y, newIs := after.(map[string]any)
	if !oldIs || !newIs {
		if shown(before) != shown(after) {
			c.add(path, ChangedRule, before, after)
		}
		return
	}
	c.types(path, x, y)
	c.enums(path, x, y)
	c.fields(path, x, y)
	c.ranges(path, x, y)
	for _, word := range []string{"pattern", "format", "contentEncoding", "contentMediaType"} {
		if y[word] != nil && shown(x[word]) != shown(y[word]) {
			c.add(path, ChangedText, x[word], y[word])
		}
	}
	c.parts(path, x, y)
}

func (c *comparison) types(path string, x, y map[string]any) {
	was, is := typesOf(x), typesOf(y)
	if !slices.Equal(was, is) {
		c.add(path, ChangedType, x["type"], y["type"])
	}
}

// typesOf returns the types that a schema names, sorted; none means any.
func typesOf(s map[string]any) (names []string) {
	switch t := s["type"].(type) {
	case string:
		names = []string{t}
	case []any:
		for _, one := range t {
			names = append(names, fmt.Sprint(one))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (c *comparison) enums(path string, x, y map[string]any) {
	was, wasAny := valuesOf(x)
	is, isAny := valuesOf(y)
	switch {
	case wasAny && isAny:
	case wasAny:
		c.add(path, NarrowedEnum, nil, slices.Sorted(maps.Keys(is)))
	case isAny:
		c.add(path, WidenedEnum, slices.Sorted(maps.Keys(was)), nil)
	default:
		if gone := without(was, is); len(gone) > 0 {
			c.add(path, NarrowedEnum, gone, nil)
		}
		if more := without(is, was); len(more) > 0 {
			c.add(path, WidenedEnum, nil, more)
		}
	}
}

// valuesOf returns the values that a schema lists, each as JSON.
func valuesOf(s map[string]any) (values map[string]bool, whatever bool) {
	list, _ := s["enum"].([]any)
	if one, ok := s["const"]; ok {
		list = append(list, one)
	}
	values = make(map[string]bool)
	for _, value := range list {
		values[shown(value)] = true
	}
	return values, len(list) == 0
}

func without(a, b map[string]bool) (left []string) {
	for _, value := range slices.Sorted(maps.Keys(a)) {
		if !b[value] {
			left = append(left, value)
		}
	}
	return left
}

func (c *comparison) fields(path string, x, y map[string]any) {
	was, is := object(x["properties"]), object(y["properties"])
	needed, needs := words(x["required"]), words(y["required"])
	for _, name := range slices.Sorted(maps.Keys(was)) {
		below := path + "/" + pointer(name)
		now, there := is[name]
		if !there {
			c.add(below, RemovedField, nil, nil)
			continue
		}
		c.compare(below, was[name], now)
	}
	for _, name := range slices.Sorted(maps.Keys(is)) {
		if _, there := was[name]; !there {
			c.add(path+"/"+pointer(name), AddedField, nil, nil)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(needs)) {
		if !needed[name] {
			c.add(path+"/"+pointer(name), NewlyRequired, nil, nil)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(needed)) {
		if _, there := is[name]; !needs[name] && (there || was[name] == nil) {
			c.add(path+"/"+pointer(name), NoLongerRequired, nil, nil)
		}
	}
	for _, word := range []string{"additionalProperties", "unevaluatedProperties"} {
		before, after := x[word], y[word]
		if before == nil {
			before = true
		}
		if after == nil {
			after = true
		}
		switch {
		case after == false && before != false:
			c.add(path, Closed, nil, nil)
		case after == true || before == false:
			// It takes whatever it took.
		default:
			c.compare(path+"/*", before, after)
		}
	}
}

// ranges are the words that bound something, and whether a greater value is
// narrower.
var ranges = map[string]bool{
	"minimum": true, "exclusiveMinimum": true, "minLength": true, "minItems": true, "minProperties": true, "minContains": true,
	"maximum": false, "exclusiveMaximum": false, "maxLength": false, "maxItems": false, "maxProperties": false, "maxContains": false,
}

func (c *comparison) ranges(path string, x, y map[string]any) {
	for _, word := range slices.Sorted(maps.Keys(ranges)) {
		is, bounded := number(y[word])
		if !bounded {
			continue
		}
		was, wasBounded := number(x[word])
		if !wasBounded || ranges[word] && is.Cmp(was) > 0 || !ranges[word] && is.Cmp(was) < 0 {
			c.add(path, NarrowedRange, named(word, x[word]), named(word, y[word]))
		}
	}
	if y["uniqueItems"] == true && x["uniqueItems"] != true {
		c.add(path, NarrowedRange, nil, named("uniqueItems", true))
	}
	if y["multipleOf"] != nil && shown(x["multipleOf"]) != shown(y["multipleOf"]) {
		c.add(path, NarrowedRange, named("multipleOf", x["multipleOf"]), named("multipleOf", y["multipleOf"]))
	}
}

// parts compares what a schema is made of besides fields.
func (c *comparison) parts(path string, x, y map[string]any) {
	for _, word := range []string{"items", "contains", "propertyNames", "not", "if", "then", "else"} {
		before, after := x[word], y[word]
		switch {
		case before == nil && after == nil:
		case word == "items" && isSchema(before) && isSchema(after):
			c.compare(path+"/*", before, after)
		case shown(resolve(c.oldRoot, before)) != shown(resolve(c.newRoot, after)):
			c.add(path, ChangedRule, named(word, before), named(word, after))
		}
	}
	for _, word := range []string{"allOf", "anyOf", "oneOf", "prefixItems"} {
		before, _ := x[word].([]any)
		after, _ := y[word].([]any)
		if len(before) != len(after) {
			c.add(path, ChangedRule, named(word, x[word]), named(word, y[word]))
			continue
		}
		for i := range before {
			below := path
			if word == "prefixItems" {
				below += "/" + strconv.Itoa(i)
			}
			c.compare(below, before[i], after[i])
		}
	}
	was, is := object(x["patternProperties"]), object(y["patternProperties"])
	for _, name := range slices.Sorted(maps.Keys(is)) {
		if was[name] == nil {
			c.add(path, ChangedRule, nil, named("patternProperties", name))
			continue
		}
		c.compare(path+"/"+pointer(name), was[name], is[name])
	}
	if oldRef, newRef := reference(x), reference(y); oldRef != newRef { // to other documents
		c.add(path, ChangedRule, named("$ref", oldRef), named("$ref", newRef))
	}
}

func isSchema(s any) bool {
	switch s.(type) {
	case map[string]any, bool:
		return true
	}
	return false
}

func reference(s any) string {
	ref, _ := object(s)["$ref"].(string)
	return ref
}

// resolve follows references within the document.
func resolve(root, s any) any {
	for range 32 {
		ref := reference(s)
		target, local := strings.CutPrefix(ref, "#")
		if ref == "" || !local {
			return s
		}
		at := root
		for _, step := range strings.Split(strings.TrimPrefix(target, "/"), "/") {
			if step != "" {
				at = object(at)[strings.NewReplacer("~1", "/", "~0", "~").Replace(step)]
			}
		}
		if at == nil {
			return s
		}
		s = at
	}
	return s
}

func object(v any) map[string]any {
	o, _ := v.(map[string]any)
	return o
}

func words(v any) map[string]bool {
	all := make(map[string]bool)
	list, _ := v.([]any)
	for _, one := range list {
		if text, ok := one.(string); ok {
			all[text] = true
		}
	}
	return all
}

func number(v any) (*big.Rat, bool) {
	n, ok := v.(json.Number)
	if !ok || len(n) > 40 { // an exponent of a million digits is no bound
		return nil, false
	}
	if _, exponent, found := strings.Cut(strings.ToLower(string(n)), "e"); found && len(exponent) > 4 {
		return nil, false
	}
	return new(big.Rat).SetString(string(n))
}

func named(word string, value any) any {
	if value == nil {
		return nil
	}
	return map[string]any{word: value}
}

// shown is a value as JSON, members in order.
func shown(value any) string {
	if value == nil {
		return ""
	}
	if list, ok := value.([]string); ok { // each is JSON already
		return "[" + strings.Join(list, ",") + "]"
	}
	text, err := json.Marshal(value)
	if err != nil {
		return ""
	}
	return string(text)
}

func clip(text string) string {
	if len(text) > 200 {
		return strings.ToValidUTF8(text[:200], "") + "..."
	}
	return text
}

// pointer is a name as a step of a JSON Pointer.
func pointer(name string) string { return strings.NewReplacer("~", "~0", "/", "~1").Replace(name) }
