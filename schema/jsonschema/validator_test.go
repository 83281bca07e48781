package jsonschema_test

import (
	"errors"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/schema/jsonschema"
)

var files = map[string]string{
	"OrderPaid.v1.json":   `{"type":"object","required":["orderId","amount"],"properties":{"orderId":{"type":"string"},"amount":{"type":"integer","maximum":9007199254740993}}}`,
	"OrderPaid.v2.json":   `{"type":"object","required":["orderId","total"],"properties":{"orderId":{"type":"string"},"total":{"$ref":"money.json"}}}`,
	"money.json":          `{"type":"object","required":["cents"],"properties":{"cents":{"type":"integer"}}}`,
	"Order.Paid.v1.json":  `false`,
	"OrderPaid.v03.json":  `{"type": "string"}`,
	"README.md":           `not a schema`,
	"Strict.v10.json":     `{"type":"object","additionalProperties":false,"properties":{"kind":{"enum":["a","b"]}}}`,
	"other/Other.v1.json": `false`,
}

func folder(files map[string]string) fstest.MapFS {
	fs := make(fstest.MapFS)
	for name, text := range files {
		fs["schemas/"+name] = &fstest.MapFile{Data: []byte(text)}
	}
	return fs
}

func TestValidateData(t *testing.T) {
	v, err := jsonschema.Load(folder(files), "schemas")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, kind string
		version    int
		data       string
		want       error
		text       string
	}{
		{"fits", "OrderPaid", 1, `{"orderId":"O-1","amount":9007199254740993}`, nil, ""},
		{"no version means the first", "OrderPaid", 0, `{"orderId":"O-1","amount":1}`, nil, ""},
		{"above the maximum in the last digit", "OrderPaid", 1, `{"orderId":"O-1","amount":9007199254740994}`, waybill.ErrInvalidData, "/amount (maximum)"},
		{"another type", "OrderPaid", 1, `{"orderId":"secret-value","amount":"secret-too"}`, waybill.ErrInvalidData, "/amount (type)"},
		{"missing", "OrderPaid", 1, `{"orderId":"O-1"}`, waybill.ErrInvalidData, "/ (required)"},
		{"behind a reference", "OrderPaid", 2, `{"orderId":"O-1","total":{"cents":"x"}}`, waybill.ErrInvalidData, "/total/cents (type)"},
		{"a version without a schema", "OrderPaid", 3, `{}`, waybill.ErrUnknownSchema, "OrderPaid 3, known are [1 2]"},
		{"a type without any", "OrderLost", 7, `nonsense`, nil, ""},
		{"a type with a dot", "Order.Paid", 1, `{}`, waybill.ErrInvalidData, ""},
		{"a type of a deeper folder", "Other", 1, `{}`, nil, ""},
		{"enum", "Strict", 10, `{"kind":"c"}`, waybill.ErrInvalidData, "/kind (enum)"},
		{"further field", "Strict", 10, `{"kind":"a","more":1}`, waybill.ErrInvalidData, "/ (additionalProperties)"},
		{"not JSON", "OrderPaid", 1, `{"orderId":"secret-value"`, waybill.ErrInvalidData, "not JSON"},
		{"empty", "OrderPaid", 1, ``, waybill.ErrInvalidData, "not JSON"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := v.ValidateData(&waybill.Event{Type: c.kind, SchemaVersion: c.version, Data: []byte(c.data)})
			if !errors.Is(err, c.want) || (c.want == nil) != (err == nil) {
				t.Fatalf("got %v, want %v", err, c.want)
			}
			if err != nil && (!strings.Contains(err.Error(), c.text) || strings.Contains(err.Error(), "secret")) {
				t.Errorf("got %q, want it to say %q and no value", err, c.text)
			}
		})
	}
}

func TestLoadRefuses(t *testing.T) {
	for name, bad := range map[string]map[string]string{
		"nothing":          {},
		"no JSON":          {"A.v1.json": `{`},
		"no schema":        {"A.v1.json": `{"type":"thing"}`},
		"a reference away": {"A.v1.json": `{"$ref":"https://example.com/x.json"}`},
		"a missing file":   {"A.v1.json": `{"$ref":"gone.json"}`},
		"a file elsewhere": {"A.v1.json": `{"$ref":"file:///etc/passwd"}`},
	} {
		if _, err := jsonschema.Load(folder(bad), "schemas"); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
