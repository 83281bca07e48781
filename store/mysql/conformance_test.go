package mysql_test

import (
	"fmt"
	"testing"

	"github.com/waybillhq/waybill/store/storetest"
)

func TestConformance(t *testing.T) {
	onEach(t, func(t *testing.T, s server) { storetest.Run(t, s.harness()) })
}

// Random operations have the same answers as the store in memory.
func TestModel(t *testing.T) {
	steps := 400
	if testing.Short() {
		steps = 60
	}
	onEach(t, func(t *testing.T, s server) {
		for _, seed := range []uint64{1, 2, 3} {
			t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
				t.Parallel()
				storetest.RunModel(t, storetest.Memory(), s.harness(), seed, steps)
			})
		}
	})
}

func BenchmarkStore(b *testing.B) {
	for _, s := range servers {
		b.Run(s.name, func(b *testing.B) { storetest.Bench(b, server{s.name, s.dsn(b)}.harness()) })
	}
}
