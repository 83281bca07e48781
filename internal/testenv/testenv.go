// Package testenv tells tests where the real servers are that test/env starts.
package testenv

import (
	"os"
	"testing"
)

// EnvRequired, when set to anything, turns the skip of a missing server into a
// failure. So does CI, which every hosted runner sets.
const EnvRequired = "WAYBILL_TEST_REQUIRED"

// Postgres15 returns the DSN of an account that may create databases on a
// PostgreSQL 15 server, as a URL.
func Postgres15(tb testing.TB) string {
	tb.Helper()
	return lookup(tb, "WAYBILL_TEST_POSTGRES15", "postgres15", "PostgreSQL 15")
}

func lookup(tb testing.TB, variable, name, product string) string {
	tb.Helper()
	if value := os.Getenv(variable); value != "" {
		return value
	}
	const sentence = `%s is not set, so there is no %s to test against: run eval "$(test/env/env up %s)" first`
	if os.Getenv("CI") != "" || os.Getenv(EnvRequired) != "" {
		tb.Fatalf(sentence, variable, product, name)
	}
	tb.Skipf(sentence, variable, product, name)
	return ""
}
