package chaos

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// An act is one piece of mischief. Its numbers are drawn with the plan, so that
// a seed names all that is done.
type act struct {
	at     time.Duration // since the beginning
	what   string
	who    int // which process or link, taken modulo their number
	detail int
	lasts  time.Duration
}

func (a act) String() string {
	return fmt.Sprintf("%6.1f s %s %d/%d for %v", a.at.Seconds(), a.what, a.who, a.detail, a.lasts)
}

// Kinds of acts.
const (
	kill          = "kill"   // a process, which is started again
	stop          = "stop"   // a process in good order, which is started again
	freeze        = "freeze" // a process, for longer than its lease lives
	disturb       = "disturb"
	loseAnswers   = "lose answers" // to the writer, to its COMMIT too
	killBroker    = "kill the broker"
	restartBroker = "restart the broker"
	killDatabase  = "kill the database"
	restart       = "restart the database"
	failover      = "fail over"
)

// Small acts come every second or two, weighted; great ones, in which a server is
// away, every greatEvery, in turns, so that a short run has each kind that
// matters most.
const greatEvery = 11 * time.Second

// calm is how much longer it is from act to act where relays read the log. After
// each fault they read the queue first: were there no time left after that, the
// log would tell of nothing.
const calm = 3

// rarely is how much longer it is then from one great act to the next.
const rarely = 6 * time.Second

func plan(seed uint64, total time.Duration, further, great []string) []act {
	shortest, longest, later, ttl := 700*time.Millisecond, 2*time.Second, time.Duration(0), leaseTTL
	if len(further) > 0 {
		shortest, longest, later, ttl = calm*shortest, calm*longest, rarely, 2*leaseTTL
	}
	random := rand.New(rand.NewPCG(seed, 0))
	between := func(low, high time.Duration) time.Duration {
		return low + time.Duration(random.Int64N(int64(high-low)))
	}
	small := []string{kill, kill, kill, freeze, freeze, stop, disturb, disturb, disturb, disturb, loseAnswers}
	var acts []act
	for at := between(500*time.Millisecond, time.Second); at < total; at += between(shortest, longest) {
		a := act{at: at, what: small[random.IntN(len(small))], who: random.IntN(1 << 16), detail: random.IntN(1 << 16)}
		switch a.what {
		case freeze:
			a.lasts = between(ttl+500*time.Millisecond, ttl+2*leaseTTL)
		case disturb, loseAnswers:
			a.lasts = between(300*time.Millisecond, 3*time.Second)
		}
		acts = append(acts, a)
	}
	var turn []string
	for at := between(3*time.Second, 5*time.Second); at < total-2*time.Second; at += greatEvery + later + between(0, 3*time.Second) {
		if len(turn) == 0 {
			turn = slices.Clone(great)
			random.Shuffle(len(turn), func(i, j int) { turn[i], turn[j] = turn[j], turn[i] })
		}
		acts = append(acts, act{at: at, what: turn[0], lasts: between(0, 2*time.Second)})
		turn = turn[1:]
	}
	// A run proves nothing of losses that it does not have.
	for at := between(6*time.Second, 12*time.Second); len(further) > 0 && at < total-3*time.Second; at += between(12*time.Second, 20*time.Second) {
		acts = append(acts, act{at: at, what: loseLog, detail: 2 * len(acts)}) // one way after the other
	}
	if slices.Contains(further, switchMode) {
		acts = append(acts, switches(total, between)...)
	}
	slices.SortStableFunc(acts, func(a, b act) int { return int(a.at - b.at) })
	return acts
}

// switches has relays read the log and poll in turns, the longer one being that
// which takes a while until it is what it is.
func switches(total time.Duration, between func(low, high time.Duration) time.Duration) (acts []act) {
	for at, detail := between(time.Second, 2*time.Second), 1; at < total; detail = 1 - detail {
		acts = append(acts, act{at: at, what: switchMode, detail: detail})
		if at += between(2*time.Second, 5*time.Second); detail == 1 {
			at += between(4*time.Second, 8*time.Second)
		}
	}
	return acts
}

func TestSeedNamesThePlan(t *testing.T) {
	great := []string{killBroker, killDatabase, failover}
	first := plan(7, time.Minute, nil, great)
	if !slices.Equal(first, plan(7, time.Minute, nil, great)) {
		t.Error("one seed makes two plans")
	}
	if slices.Equal(first, plan(8, time.Minute, nil, great)) {
		t.Error("two seeds make one plan")
	}
	for seed := range uint64(200) {
		seen := make(map[string]int)
		for _, a := range plan(seed, 40*time.Second, nil, great) {
			seen[a.what]++
		}
		for _, what := range append([]string{kill, disturb}, great...) {
			if seen[what] == 0 {
				t.Errorf("seed %d: no act %q in %v", seed, what, seen)
			}
		}
	}
}
