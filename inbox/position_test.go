package inbox

import (
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waybillhq/waybill/broker"
)

func TestOnlyTheLowestContiguousSettledPositionIsCommitted(t *testing.T) {
	a, b := broker.Partition{Topic: "t", ID: 0}, broker.Partition{Topic: "t", ID: 1}
	p := newPositions()
	check := func(want ...broker.Position) {
		t.Helper()
		if got := p.ready(); !reflect.DeepEqual(got, want) {
			t.Errorf("ready: got %v, want %v", got, want)
		}
	}
	for _, at := range []int64{5, 7, 8, 20} {
		p.receive(a, at)
	}
	p.receive(b, 3)
	p.settle(a, 7)
	p.settle(a, 8)
	check()
	p.settle(b, 3)
	check(broker.Position{Partition: b, Settled: 3})
	p.settle(a, 5)
	check(broker.Position{Partition: a, Settled: 8}, broker.Position{Partition: b, Settled: 3})
	p.committed(broker.Position{Partition: b, Settled: 3})
	check(broker.Position{Partition: a, Settled: 8})
	p.settle(a, 20)
	p.committed(broker.Position{Partition: a, Settled: 8}) // an older one than is ready
	check(broker.Position{Partition: a, Settled: 20})
	// Given back: from an earlier place on.
	p.receive(a, 9)
	check()
	p.settle(a, 9)
	check(broker.Position{Partition: a, Settled: 9})
	p.forget(a)
	check()
}

func TestPositionIsGivenUpWhenTheBrokerAloneRefusesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := broker.Position{Partition: broker.Partition{Topic: "t"}, Settled: 1}
		p := newPositions()
		p.receive(a.Partition, 1)
		p.settle(a.Partition, 1)
		for range 100 { // the broker is away
			p.missed(a, true)
			pauseFor(t.Context(), 10*time.Second)
		}
		if len(p.ready()) != 1 {
			t.Error("given up while the broker was away")
		}
		p.missed(a, false)
		pauseFor(t.Context(), giveUpAfter)
		p.missed(a, false)
		if len(p.ready()) != 0 {
			t.Error("not given up")
		}
	})
}
