package demo

import (
	"fmt"
	"math/rand/v2"
)

// step is one business transaction.
type step struct {
	orderID  string
	product  string
	qty      int
	version  int64 // of the order after this step
	status   string
	refused  bool // the transaction is rolled back at the end
	newOrder bool
}

// lifecycle is what happens to an order, in order; version 1 is the first.
var lifecycle = []string{"placed", "paid", "shipped"}

var eventTypes = map[string]string{"placed": "OrderPlaced", "paid": "OrderPaid", "shipped": "OrderShipped"}

var products = []string{"apples", "bread", "cheese", "dates", "eggs"}

// The poison order is on a key of its own: no inventory knows its product.
const (
	poisonOrder   = "O-poison"
	poisonProduct = "unobtainium"
)

// refuseEvery is how often a transaction is rolled back.
const refuseEvery = 20

// script returns steps with exactly that many events among them: orders in
// several stages, mixed, some transactions rolled back, one poison order early on.
func script(events int, seed uint64) []step {
	random := rand.New(rand.NewPCG(seed, 0))
	var steps []step
	var open []step // orders that have a next stage
	number, written := 0, 0
	fresh := func() step {
		number++
		return step{
			orderID: fmt.Sprintf("O-%05d", number), product: products[random.IntN(len(products))], qty: 1 + random.IntN(9),
			version: 1, status: lifecycle[0], newOrder: true,
		}
	}
	for written < events {
		switch {
		case len(steps)%refuseEvery == 3:
			s := fresh()
			s.refused = true
			steps = append(steps, s)
			continue
		case written == events/10:
			steps = append(steps, step{orderID: poisonOrder, product: poisonProduct, qty: 1, version: 1, status: lifecycle[0], newOrder: true})
		case len(open) > 0 && random.IntN(3) > 0:
			i := random.IntN(len(open))
			s := open[i]
			s.version, s.status, s.newOrder = s.version+1, lifecycle[s.version], false
			if open[i] = s; int(s.version) == len(lifecycle) {
				open[i] = open[len(open)-1]
				open = open[:len(open)-1]
			}
			steps = append(steps, s)
		default:
			s := fresh()
			open = append(open, s)
			steps = append(steps, s)
		}
		written++
	}
	return steps
}
