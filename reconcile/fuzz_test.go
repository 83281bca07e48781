package reconcile

import (
	"strings"
	"testing"
)

// Pairs of texts must sort as pairs, whatever bytes are in them.
func FuzzKeysSortAsTheirParts(f *testing.F) {
	f.Add("a", "b", "ab", "")
	f.Add("a\x00", "", "a", "\x00")
	f.Add("a\x00\xff", "x", "a", "\xffx")
	kinds := []KeyKind{KeyText, KeyText}
	f.Fuzz(func(t *testing.T, a1, a2, b1, b2 string) {
		a, err := NewKey(kinds, []any{a1, a2})
		if err != nil {
			t.Fatal(err)
		}
		b, err := NewKey(kinds, []any{[]byte(b1), b2})
		if err != nil {
			t.Fatal(err)
		}
		want := strings.Compare(a1, b1)
		if want == 0 {
			want = strings.Compare(a2, b2)
		}
		if got := a.Compare(b); got != want {
			t.Errorf("Compare(%q %q, %q %q) = %d, want %d", a1, a2, b1, b2, got, want)
		}
	})
}

// The canonical form of a document is a document of the same canonical form.
func FuzzJSON(f *testing.F) {
	for _, seed := range []string{`{"b":1.0,"a":[1,null,"x"]}`, `"\u0000"`, `1e400`, `{"a":1,"a":2}`, `[`, ` 1 2`, `-0.0`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		first, ok := canonicalJSON(text)
		if !ok {
			return
		}
		if again, ok := canonicalJSON(first); !ok || again != first {
			t.Errorf("canonicalJSON(%q) = %q, and of that %q %v", text, first, again, ok)
		}
	})
}

// Any value is equal to itself, however it is read, and none to NULL.
func FuzzValuesEqualThemselves(f *testing.F) {
	for _, seed := range []string{"", "1.10", "2026-03-01 12:00:00.5", "{}", "true", "NULL", "0189e4d2-7c1b-7000-8000-00000000000a", "NaN"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, kind := range columnKinds {
			c := column{as: kind, digits: -1}
			if equal, note := Equal(c.value(text), c.value([]byte(text))); !equal && kind != KindAuto {
				t.Errorf("%q as %q is not equal to itself (%s)", text, kind, note)
			}
			if equal, _ := Equal(c.value(text), Null); equal {
				t.Errorf("%q as %q is NULL", text, kind)
			}
		}
	})
}
