// Package anew empties the table of events together with its sequence under a
// running relay, and shows that events with ids below those that the relay has
// done with are sent all the same.
package anew
