package relay

import "testing"

func TestShortPassBeginsAtTheLastSeenAndClosesNothing(t *testing.T) {
	l := &lane{}
	pass := func(closed int64, short bool, found int64) (after int64) {
		after = l.cursor(closed, short).After
		l.pos = max(l.pos, found)
		l.endPass()
		return after
	}
	for i, step := range []struct {
		closed int64
		short  bool
		found  int64
		want   int64
	}{
		{closed: 10, found: 50, want: 0},
		{closed: 10, found: 60, want: 10},
		{closed: 40, short: true, found: 70, want: 60},
		{closed: 40, short: true, want: 70},
		{closed: 40, found: 80, want: 10}, // short passes have not looked below
		{closed: 90, want: 40},
		{closed: 90, short: true, want: 90},
	} {
		if got := pass(step.closed, step.short, step.found); got != step.want {
			t.Errorf("pass %d: begins after %d, want %d", i, got, step.want)
		}
	}
	l.restart(1)
	if got := pass(0, true, 0); got != 0 {
		t.Errorf("after a restart: begins after %d, want 0", got)
	}
}
