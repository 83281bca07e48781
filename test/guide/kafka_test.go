package guide

import (
	"crypto/rand"
	"slices"
	"strings"

	"github.com/waybillhq/waybill/internal/testenv"
)

// useKafka lets the page have a cluster, and a topic of its own there.
func (r *reader) useKafka() {
	address := testenv.Kafka4(r.t)
	r.env = slices.DeleteFunc(r.env, func(entry string) bool { return strings.HasPrefix(entry, "WAYBILL_BROKER_") })
	r.replace = strings.NewReplacer("127.0.0.1:9092", address, "paid-orders", "paid-orders-"+strings.ToLower(rand.Text()[:8]))
}
