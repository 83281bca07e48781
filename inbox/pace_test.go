package inbox

import (
	"testing"
	"time"
)

func TestFewQuickEventsStayTogether(t *testing.T) {
	for _, c := range []struct {
		name string
		each time.Duration
		n    int
		want int
	}{
		{"nothing is known", 0, 3, 4},
		{"few quick ones", 50 * time.Microsecond, 60, 1},
		{"more quick ones", 50 * time.Microsecond, 250, 3},
		{"many quick ones", 50 * time.Microsecond, 2000, 4},
		{"few slow ones", 20 * time.Millisecond, 2, 4},
		{"one that took no time", 1, 1, 1},
	} {
		var p pace
		if c.each > 0 {
			p.note(10, 10*c.each)
		}
		if got := p.parts(c.n, 4); got != c.want {
			t.Errorf("%s: got %d parts, want %d", c.name, got, c.want)
		}
	}
}

func TestPaceFollowsHandlers(t *testing.T) {
	var p pace
	p.note(1, time.Microsecond)
	p.note(0, time.Hour)
	for range 20 {
		p.note(2, 40*time.Millisecond)
	}
	if got := p.parts(4, 8); got != 8 {
		t.Errorf("handlers have become slow: got %d parts, want 8", got)
	}
}
