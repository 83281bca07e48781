package memstore_test

import (
	"fmt"
	"testing"

	"github.com/waybillhq/waybill/store/storetest"
)

func TestConformance(t *testing.T) {
	storetest.Run(t, storetest.Memory())
}

// TestModel compares the store with itself: it proves that the model's answers
// do not depend on chance. Real stores are compared with this one.
func TestModel(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			storetest.RunModel(t, storetest.Memory(), storetest.Memory(), seed, 300)
		})
	}
}

func BenchmarkStore(b *testing.B) { storetest.Bench(b, storetest.Memory()) }
