// Package brokertest is the suite that every broker adapter must pass. An
// adapter's own test describes its server with a [Harness] and calls [Run]; its
// benchmark calls [Bench].
package brokertest
