package reconcile

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
)

func TestAStoredKeyIsTheKeyAgain(t *testing.T) {
	kinds := []KeyKind{KeyText, KeyInteger, KeyUUID, KeyBinary}
	id := "0191f3b2-0000-7000-8000-00000000000a"
	for _, parts := range [][]any{
		{"", int64(0), id, []byte{}},
		{"a\x00b\x00\x00", int64(-1), id, []byte{0, 255, 0}},
		{"ä", uint64(1<<64 - 1), id, []byte{0}},
		{"z\xff", int64(-1 << 63), id, []byte("x")},
		{"\x00", int64(1<<63 - 1), id, []byte{0, 0}},
	} {
		key, err := NewKey(kinds, parts)
		if err != nil {
			t.Fatal(err)
		}
		again, err := keyFromStored(kinds, key.stored())
		if err != nil || again.Compare(key) != 0 || again.String() != key.String() || fmt.Sprintf("%T", again.parts) != fmt.Sprintf("%T", key.parts) {
			t.Errorf("%v: got %v, %v", parts, again, err)
		}
		for i := range key.parts {
			if got, want := fmt.Sprintf("%T", again.parts[i]), fmt.Sprintf("%T", key.parts[i]); got != want {
				t.Errorf("part %d of %v: %s, want %s", i, parts, got, want)
			}
		}
		for _, other := range [][]KeyKind{{KeyText}, {KeyInteger, KeyText, KeyUUID, KeyBinary}, append(slices.Clone(kinds), KeyText)} {
			if got, err := keyFromStored(other, key.stored()); !errors.Is(err, errKey) {
				t.Errorf("%v read as %v: %v, %v, want a refusal", parts, other, got, err)
			}
		}
	}
	if _, err := keyFromStored(kinds, "no hex"); err == nil {
		t.Error("what is no hex was read")
	}
}

func TestUnionYieldsEachKeyOnceInOrder(t *testing.T) {
	for _, most := range []int{1, 2, 7, 100, 1000} {
		dir := t.TempDir()
		u := newUnion([]KeyKind{KeyText}, dir)
		u.most = most
		want := map[string]bool{}
		for range 300 {
			name := fmt.Sprintf("k%d\x00", rand.N(90))
			want[name] = true
			if err := u.add(textKey(t, name)); err != nil {
				t.Fatal(err)
			}
		}
		var got []Key
		for key, err := range u.sorted() {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, key)
		}
		if most < 90 && u.file == nil {
			t.Errorf("at most %d in memory, and none went to the file", most)
		}
		u.close()
		if len(got) != len(want) || !slices.IsSortedFunc(got, Key.Compare) {
			t.Errorf("at most %d in memory: %d keys, want %d in order", most, len(got), len(want))
		}
		for _, key := range got {
			if !want[key.String()] {
				t.Errorf("%q was never added", key)
			}
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
	}
}
