package reconcile

import "testing"

// TestHashIsThatOfPostgreSQL has what hashtextextended(text COLLATE "C", from)
// answers.
func TestHashIsThatOfPostgreSQL(t *testing.T) {
	for _, one := range []struct {
		text string
		from int64
		want int64
	}{
		{"", 0, -6939563903564495251},
		{"probe", 0, -3024164691344751044},
		{"probe", -12345678901234, -3858054184597093833},
		{"exactly 12 b", 77, -1705730836998644538},
		{"twenty bytes long ok", 1, 3858776869336595986},
		{"more than twelve bytes", 77, -4225152475461182351},
		{"Grüße, 你好", 77, -5777967683503547978},
	} {
		if got := int64(hash([]byte(one.text), uint64(one.from))); got != one.want {
			t.Errorf("%q from %d: %d, want %d", one.text, one.from, got, one.want)
		}
	}
}

// TestDigestsThatDifferAreAskedForLessOften has an arm that never is as the log
// says: its rows are read all the same, and digests cost ever less beside them.
func TestDigestsThatDifferAreAskedForLessOften(t *testing.T) {
	a := digested{able: true}
	asked := func(pages int) (n int) {
		for range pages {
			if a.begin(); a.wanted {
				n++
				a.note(false)
			}
		}
		return n
	}
	if n := asked(1000); n > 25 {
		t.Errorf("%d of 1000 pages asked for a digest in vain", n)
	}
	if n := asked(1 + 1<<mostMisses); n != 1 {
		t.Errorf("%d digests in %d pages, want 1: what differs now may not later", n, 1+1<<mostMisses)
	}
	a.begin()
	a.waits = 0
	a.note(true)
	if n := asked(2); n != 1 {
		t.Errorf("%d digests in the two pages after one was right, want 1", n)
	}
}
