package schema

import (
	"slices"
	"strings"
	"testing"
)

const paid = `{
	"type": "object",
	"required": ["orderId", "amount"],
	"properties": {
		"orderId": {"type": "string", "minLength": 1},
		"amount": {"$ref": "#/$defs/money"},
		"channel": {"enum": ["card", "wallet", 1.10]},
		"lines": {"type": "array", "items": {"type": "object", "properties": {"sku": {"type": "string"}, "n": {"type": "integer", "maximum": 12345678901234567890}}}},
		"note": {"type": ["string", "null"]},
		"tree": {"$ref": "#/$defs/node"}
	},
	"$defs": {
		"money": {"type": "object", "properties": {"cents": {"type": "integer"}, "currency": {"type": "string"}}},
		"node": {"type": "object", "properties": {"name": {"type": "string"}, "child": {"$ref": "#/$defs/node"}}}
	}
}`

func TestCompare(t *testing.T) {
	for _, c := range []struct {
		name    string
		replace []string
		want    []string
	}{
		{name: "the same"},
		{name: "white space, order and words for people", replace: []string{`"enum": ["card", "wallet", 1.10]`, `"description":"how",  "enum":["wallet",1.10,"card"]`}},
		{name: "field removed", replace: []string{`"note": {"type": ["string", "null"]},`, ``}, want: []string{"! removed-field /note"}},
		{name: "field removed below a reference", replace: []string{`, "currency": {"type": "string"}`, ``}, want: []string{"! removed-field /amount/currency"}},
		{name: "required field removed", replace: []string{`"orderId": {"type": "string", "minLength": 1},`, ``, `"orderId", `, ``}, want: []string{"! removed-field /orderId"}},
		{name: "type changed", replace: []string{`"sku": {"type": "string"}`, `"sku": {"type": "integer"}`}, want: []string{`! changed-type /lines/*/sku: "string" became "integer"`}},
		{name: "type widened", replace: []string{`"cents": {"type": "integer"}`, `"cents": {"type": "number"}`}, want: []string{`! changed-type /amount/cents: "integer" became "number"`}},
		{name: "null taken away", replace: []string{`["string", "null"]`, `"string"`}, want: []string{`! changed-type /note: ["string","null"] became "string"`}},
		{name: "the order of types", replace: []string{`["string", "null"]`, `["null", "string"]`}},
		{name: "enum narrowed", replace: []string{`"card", `, ``}, want: []string{`! narrowed-enum /channel: ["card"]`}},
		{name: "enum narrowed to one", replace: []string{`"enum": ["card", "wallet", 1.10]`, `"const": "card"`}, want: []string{`! narrowed-enum /channel: ["wallet",1.10]`}},
		{name: "enum widened", replace: []string{`"card", `, `"card", "cash", `}, want: []string{`  widened-enum /channel: ["cash"]`}},
		{name: "enum brought in", replace: []string{`"currency": {"type": "string"}`, `"currency": {"type": "string", "enum": ["EUR"]}`}, want: []string{`! narrowed-enum /amount/currency: ["EUR"]`}},
		{name: "newly required", replace: []string{`"amount"]`, `"amount", "note"]`}, want: []string{"! newly-required /note"}},
		{name: "no longer required", replace: []string{`"orderId", "amount"`, `"orderId"`}, want: []string{"! no-longer-required /amount"}},
		{name: "field added", replace: []string{`"note":`, `"a/b~c": {}, "note":`}, want: []string{"  added-field /a~1b~0c"}},
		{name: "closed", replace: []string{`"required":`, `"additionalProperties": false, "required":`}, want: []string{"! closed /"}},
		{name: "range narrowed in its last digit", replace: []string{`12345678901234567890`, `12345678901234567889`}, want: []string{`! narrowed-range /lines/*/n: {"maximum":12345678901234567890} became {"maximum":12345678901234567889}`}},
		{name: "range widened in its last digit", replace: []string{`12345678901234567890`, `12345678901234567891`}},
		{name: "length narrowed", replace: []string{`"minLength": 1`, `"minLength": 2`}, want: []string{`! narrowed-range /orderId: {"minLength":1} became {"minLength":2}`}},
		{name: "pattern brought in", replace: []string{`"minLength": 1`, `"minLength": 1, "pattern": "^O-"`}, want: []string{`! changed-text /orderId: "^O-"`}},
		{name: "within a schema that contains itself", replace: []string{`"name": {"type": "string"}`, `"name": {"type": "integer"}`}, want: []string{`! changed-type /tree/name: "string" became "integer"`}},
		{name: "rules that cannot be compared", replace: []string{`"required":`, `"oneOf": [{}, {}], "required":`}, want: []string{`! changed-rule /: {"oneOf":[{},{}]}`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			next := paid
			for i := 0; i < len(c.replace); i += 2 {
				if !strings.Contains(next, c.replace[i]) {
					t.Fatalf("nothing to replace: %s", c.replace[i])
				}
				next = strings.Replace(next, c.replace[i], c.replace[i+1], 1)
			}
			changes, err := Compare([]byte(paid), []byte(next))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, change := range changes {
				got = append(got, map[bool]string{true: "! ", false: "  "}[change.Breaks]+change.String())
			}
			slices.Sort(got)
			slices.Sort(c.want)
			if !slices.Equal(got, c.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}

func TestCompareRefusesWhatIsNoSchema(t *testing.T) {
	for _, text := range []string{``, `[]`, `"x"`, `{} {}`, `{`, `null`} {
		if _, err := Compare([]byte(text), []byte(`{}`)); err == nil {
			t.Errorf("%q: no error", text)
		}
		if _, err := Compare([]byte(`{}`), []byte(text)); err == nil {
			t.Errorf("new %q: no error", text)
		}
	}
}

func FuzzCompare(f *testing.F) {
	f.Add(paid, `{"$ref":"#"}`)
	f.Add(`true`, `{"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/a"}}}`)
	f.Add(`{"properties":{"x":{"$ref":"#"}}}`, `{"properties":{"x":{"$ref":"#"},"y":{}}}`)
	f.Fuzz(func(t *testing.T, a, b string) {
		if changes, err := Compare([]byte(a), []byte(a)); err == nil && len(changes) > 0 {
			t.Errorf("differs from itself: %v", changes)
		}
		_, _ = Compare([]byte(a), []byte(b))
	})
}
