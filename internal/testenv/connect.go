package testenv

import "testing"

// Connect4 returns the URL of a Kafka Connect 4 with Debezium's connectors of
// PostgreSQL and MySQL, a client of the broker of [Kafka4].
func Connect4(tb testing.TB) string {
	tb.Helper()
	return lookup(tb, "WAYBILL_TEST_CONNECT4", "connect4", "Kafka Connect 4 with Debezium")
}
