// Package relaytest holds the behaviour that a relay must show over every
// store: order, retries, outages, holds, leases. A store's test calls [Run]
// with a [Harness] of about twenty lines. The broker is membroker, so that each
// fault can be planted where it hurts; [Harness.Behind] puts a real broker behind it.
package relaytest
