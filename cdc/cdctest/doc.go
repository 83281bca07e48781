// Package cdctest is the conformance suite of package cdc: every source of a
// database's log passes it.
package cdctest
