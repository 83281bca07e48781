package waybill_test

import (
	"log"
	"time"
)

// await polls for a condition of an example.
func await(done func() bool) {
	deadline := time.Now().Add(2 * time.Minute)
	for !done() {
		if time.Now().After(deadline) {
			log.Fatal("the example takes too long")
		}
		time.Sleep(time.Millisecond)
	}
}
