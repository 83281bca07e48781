package reconcile

import (
	"cmp"
	"errors"
	"iter"
	"math"
	"slices"
	"strings"
	"testing"
)

func textKey(t testing.TB, text string) Key {
	t.Helper()
	key, err := NewKey([]KeyKind{KeyText}, []any{text})
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func TestKeysAreOrderedAsTheirParts(t *testing.T) {
	for _, tt := range []struct {
		name  string
		kinds []KeyKind
		keys  [][]any // ascending
	}{
		{"text, bytewise", []KeyKind{KeyText}, [][]any{{"-b"}, {"1"}, {"A"}, {"Z"}, {"_a"}, {"a"}, {"a\x00"}, {"a "}, {"z"}, {"ä"}}},
		{"integer", []KeyKind{KeyInteger}, [][]any{{int64(math.MinInt64)}, {int64(-1)}, {int64(0)}, {"9"}, {[]byte("10")}, {uint64(math.MaxInt64)}, {uint64(math.MaxUint64)}}},
		{"uuid", []KeyKind{KeyUUID}, [][]any{{"00000000-0000-0000-0000-000000000001"}, {strings.Repeat("\x01", 16)}, {"FFFFFFFF-0000-0000-0000-000000000000"}}},
		{"composite", []KeyKind{KeyText, KeyInteger}, [][]any{{"", int64(5)}, {"a", int64(-3)}, {"a", int64(2)}, {"a\x00", int64(1)}, {"ab", int64(0)}}},
		{"binary", []KeyKind{KeyBinary, KeyText}, [][]any{{[]byte{}, "b"}, {[]byte{0}, "a"}, {[]byte{0, 0}, ""}, {[]byte{1}, ""}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var keys []Key
			for _, parts := range tt.keys {
				key, err := NewKey(tt.kinds, parts)
				if err != nil {
					t.Fatal(err)
				}
				keys = append(keys, key)
			}
			for i := range keys {
				for j := range keys {
					if got, want := keys[i].Compare(keys[j]), cmp.Compare(i, j); got != want {
						t.Errorf("Compare(%s, %s) = %d, want %d", keys[i], keys[j], got, want)
					}
				}
			}
		})
	}
}

func TestNoKeyFromFloats(t *testing.T) {
	for _, kind := range []KeyKind{KeyInteger, KeyText, KeyUUID, KeyBinary} {
		if key, err := NewKey([]KeyKind{kind}, []any{1.5}); !errors.Is(err, errKey) {
			t.Errorf("%s from 1.5: %v, %v", kind, key, err)
		}
	}
	if _, err := NewKey([]KeyKind{KeyText}, []any{nil}); err == nil {
		t.Error("NULL became a key")
	}
}

func TestRangesAreHalfOpen(t *testing.T) {
	a, m := textKey(t, "a"), textKey(t, "m")
	r := Range{From: &a, To: &m}
	for text, want := range map[string]bool{"A": false, "a": true, "b": true, "m": false, "z": false} {
		if got := r.Contains(textKey(t, text)); got != want {
			t.Errorf("%s contains %s: %v", r, text, got)
		}
	}
	if !(Range{}).Contains(a) {
		t.Error("the open range lacks a key")
	}
}

func rows(t testing.TB, keys ...string) iter.Seq2[Keyed[*Row], error] {
	var items []Keyed[*Row]
	for _, key := range keys {
		items = append(items, Keyed[*Row]{textKey(t, key), &Row{EventID: key}})
	}
	return each(items)
}

func events(t testing.TB, keys ...string) iter.Seq2[Keyed[[]Event], error] {
	var items []Keyed[[]Event]
	for _, key := range keys {
		items = append(items, Keyed[[]Event]{textKey(t, key), []Event{{ID: key}}})
	}
	return each(items)
}

func TestMergeMeetsEachKeyOnce(t *testing.T) {
	var got []string
	for joined, err := range Merge(rows(t, "a", "c", "d"), events(t, "b", "c"), rows(t, "c", "d", "e")) {
		if err != nil {
			t.Fatal(err)
		}
		text := joined.Key.String()
		for arm, has := range map[string]bool{"W": joined.Write != nil, "L": joined.Log != nil, "R": joined.Read != nil} {
			if has {
				text += arm
			}
		}
		letters := strings.Split(text, "")
		slices.Sort(letters)
		got = append(got, strings.Join(letters, ""))
	}
	if want := []string{"Wa", "Lb", "LRWc", "RWd", "Re"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestMergeRefusesAStreamOutOfOrder(t *testing.T) {
	for _, keys := range [][]string{{"b", "a"}, {"a", "a"}} {
		var last error
		for _, err := range Merge(rows(t, "a"), events(t), rows(t, keys...)) {
			last = err
		}
		if last == nil || !strings.Contains(last.Error(), "read side") {
			t.Errorf("%v: %v", keys, last)
		}
	}
}
