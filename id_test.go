package waybill

import (
	"encoding/hex"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

var uuidV7 = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)

func TestNewIDIsUUIDv7(t *testing.T) {
	seen := make(map[string]bool)
	for range 2000 {
		id := NewID()
		if !uuidV7.MatchString(id) {
			t.Fatalf("%q is no UUID of version 7", id)
		}
		if seen[id] {
			t.Fatalf("%q came twice", id)
		}
		seen[id] = true
	}
}

func TestNewIDCarriesAndSortsByMilliseconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		last := ""
		for range 300 {
			id := NewID()
			if id <= last {
				t.Fatalf("%s, made a millisecond after %s, does not sort after it", id, last)
			}
			last = id
			raw, _ := hex.DecodeString(strings.ReplaceAll(id, "-", "")[:12])
			var ms int64
			for _, b := range raw {
				ms = ms<<8 | int64(b)
			}
			if want := time.Now().UnixMilli(); ms != want {
				t.Fatalf("%s has %d ms, want %d", id, ms, want)
			}
			time.Sleep(time.Millisecond)
		}
	})
}

func TestKeyID(t *testing.T) {
	long := strings.Repeat("x", MaxIDLen)
	cases := []struct {
		name, tenant, aggregateType, aggregateID string
		version                                  int64
		eventType, want                          string
	}{
		{"plain", "acme", "order", "O-1", 3, "OrderPaid", "acme/order/O-1/3/OrderPaid"},
		{"no tenant", "", "order", "O-1", 3, "OrderPaid", "/order/O-1/3/OrderPaid"},
		{"separator in a part", "a/b", "c", "d", 1, "T", "a%2Fb/c/d/1/T"},
		{"escape in a part", "a%2Fb", "c", "d", 1, "T", "a%252Fb/c/d/1/T"},
		{"at the limit", "", "", long[:MaxIDLen-6], 1, "T", "//" + long[:MaxIDLen-6] + "/1/T"},
		// sha256 of the joined text: printf '//xxx.../1/T' | sha256sum
		{"over the limit", "", "", long, 1, "T", "sha256:84339c30274803c58dbe48f1689e18f8a0f3fd17c30aaf90e4dca668bd851093"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := KeyID(c.tenant, c.aggregateType, c.aggregateID, c.version, c.eventType); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func FuzzKeyIDIsInjective(f *testing.F) {
	type tuple struct {
		tenant, aggregateType, aggregateID string
		version                            int64
		eventType                          string
	}
	long := strings.Repeat("/", MaxIDLen)
	for _, s := range [][2]tuple{
		{{"a/b", "c", "d", 1, "e"}, {"a", "b/c", "d", 1, "e"}},
		{{"a%2Fb", "c", "d", 1, "e"}, {"a/b", "c", "d", 1, "e"}},
		{{"", "", "", 0, ""}, {"", "", "", 0, "/"}},
		{{"a", "", "1", 1, ""}, {"a", "", "", 11, ""}},
		{{long, "", "", 1, ""}, {"", long, "", 1, ""}},
		{{"sha256:00", "", "", 1, ""}, {"sha256:", "00", "", 1, ""}},
	} {
		f.Add(s[0].tenant, s[0].aggregateType, s[0].aggregateID, s[0].version, s[0].eventType,
			s[1].tenant, s[1].aggregateType, s[1].aggregateID, s[1].version, s[1].eventType)
	}
	f.Fuzz(func(t *testing.T, t1, a1, i1 string, v1 int64, e1, t2, a2, i2 string, v2 int64, e2 string) {
		x, y := tuple{t1, a1, i1, v1, e1}, tuple{t2, a2, i2, v2, e2}
		idX, idY := KeyID(t1, a1, i1, v1, e1), KeyID(t2, a2, i2, v2, e2)
		if (x == y) != (idX == idY) {
			t.Errorf("%+v -> %s\n%+v -> %s", x, idX, y, idY)
		}
		if len(idX) > MaxIDLen {
			t.Errorf("%s has %d bytes", idX, len(idX))
		}
		// A neighbour of x in each direction is another one.
		for _, n := range []string{
			KeyID(t1+"/", a1, i1, v1, e1), KeyID(t1, "/"+a1, i1, v1, e1), KeyID(t1, a1, i1+"%", v1, e1),
			KeyID(t1, a1, i1+strconv.FormatInt(v1, 10), v1, e1), KeyID(t1, a1, i1, v1+1, e1), KeyID(t1, a1, i1, v1, e1+"x"),
		} {
			if n == idX {
				t.Errorf("a neighbour of %+v has its id %s", x, idX)
			}
		}
	})
}
