package sqlite_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/sqlite"
)

// keyFamilies are keys as services have them.
var keyFamilies = []struct {
	name string
	key  func(i int) string
}{
	{"numbers", func(i int) string { return fmt.Sprint(i) }},
	{"round numbers", func(i int) string { return fmt.Sprint(i * 6400) }},
	{"padded numbers", func(i int) string { return fmt.Sprintf("order-%012d", i) }},
	{"uuids", func(int) string { return waybill.NewID() }},
	{"long", func(i int) string { return strings.Repeat("x", 240) + fmt.Sprint(i) }},
	{"unicode", func(i int) string { return fmt.Sprintf("订单-%d-é", i) }},
	{"mirrored", func(i int) string { return fmt.Sprintf("%d/%d", i, 10_000-i) }},
}

// TestLanesAreEven demands of many keys what chance would give in all but one
// of a million cases: chi-square with 63 degrees of freedom stays below 130.
func TestLanesAreEven(t *testing.T) {
	const n = laneKeys
	for _, family := range keyFamilies {
		t.Run(family.name, func(t *testing.T) {
			st := open(t, nil)
			var events []waybill.Event
			for i := range n {
				events = append(events, event(fmt.Sprint("e", i), family.key(i)))
			}
			appendEvents(t, st, events...)
			counts := make([]int, store.Lanes)
			hashes := make(map[int64]string, n)
			for _, row := range hot(t, st) {
				counts[row.Lane]++
				if other, ok := hashes[row.KeyHash]; ok && other != row.Event.Key {
					t.Errorf("keys %q and %q share a hash", other, row.Event.Key)
				}
				hashes[row.KeyHash] = row.Event.Key
			}
			if len(hashes) != n {
				t.Fatalf("hashes: got %d, want %d", len(hashes), n)
			}
			var chi float64
			const mean = float64(n) / store.Lanes
			for _, count := range counts {
				chi += (float64(count) - mean) * (float64(count) - mean) / mean
			}
			if chi > 130 {
				t.Errorf("chi-square is %.0f; lanes: %v", chi, counts)
			}
		})
	}
}

// TestLaneFunctionIsFixed: rows in users' databases carry these values.
func TestLaneFunctionIsFixed(t *testing.T) {
	for _, c := range []struct {
		topic, key string
		lane       int
		key1, top1 int64
	}{
		{"orders", "O-1", 53, 3769807013564751377, 3326225211217446662},
		{"orders", "O-2", 26, 3769910674747993606, 3326225211217446662},
		{"o", "O-1", 53, 4018130000450164904, 3574548198102860189},
		{"orders", "schlüssel 钥匙", 50, 645405681397429567, 3326225211217446662},
		{"orders", strings.Repeat("k", 255), 41, 241319378397169230, 3326225211217446662},
	} {
		t.Run(c.topic+" "+c.key[:1], func(t *testing.T) {
			st := open(t, &sqlite.Config{NoTrigger: true})
			e := event("e1", c.key)
			e.Topic = c.topic
			appendEvents(t, st, e)
			row := hot(t, st)[0]
			if row.Lane != c.lane || row.KeyHash != c.key1 || row.TopicHash != c.top1 {
				t.Errorf("got %d, %d, %d, want %d, %d, %d", row.Lane, row.KeyHash, row.TopicHash, c.lane, c.key1, c.top1)
			}
		})
	}
}

// Rows of another function would be looked for in the wrong lanes and keys.
func TestLanesOfAnotherFunctionAreRefused(t *testing.T) {
	st := open(t, nil)
	if _, err := st.DB().ExecContext(t.Context(), "UPDATE waybill_meta SET value = '0' WHERE key = 'lane_function'"); err != nil {
		t.Fatal(err)
	}
	_, err := st.ReadMeta(t.Context())
	if !errors.Is(err, store.ErrSchemaNewer) || !strings.Contains(err.Error(), `function "0"`) {
		t.Errorf("got %v, want ErrSchemaNewer that names the function", err)
	}
	wantHint(t, err, "newer release")
}
