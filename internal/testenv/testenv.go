// Package testenv tells tests where the real servers are that test/env starts.
package testenv

import (
	"os"
	"os/exec"
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

// Postgres18 is [Postgres15] for PostgreSQL 18.
func Postgres18(tb testing.TB) string {
	tb.Helper()
	return lookup(tb, "WAYBILL_TEST_POSTGRES18", "postgres18", "PostgreSQL 18")
}

// PgBouncer1 returns the DSN of an account of PostgreSQL 15, as a URL, by way of a
// PgBouncer that lends sessions for a transaction. Databases have the same names.
func PgBouncer1(tb testing.TB) string {
	tb.Helper()
	return lookup(tb, "WAYBILL_TEST_PGBOUNCER1", "pgbouncer1", "PgBouncer")
}

// MySQL9 returns the DSN of an account that may do everything on a MySQL 9
// server, as github.com/go-sql-driver/mysql takes it.
func MySQL9(tb testing.TB) string {
	tb.Helper()
	return lookup(tb, "WAYBILL_TEST_MYSQL9", "mysql9", "MySQL 9")
}

// MariaDB10 is [MySQL9] for MariaDB 10.11.
func MariaDB10(tb testing.TB) string {
	tb.Helper()
	return lookup(tb, "WAYBILL_TEST_MARIADB10", "mariadb10", "MariaDB 10.11")
}

// Kafka4 returns the address, host:port, of an Apache Kafka 4 broker that lets
// anonymous clients do everything.
func Kafka4(tb testing.TB) string {
	tb.Helper()
	return lookup(tb, "WAYBILL_TEST_KAFKA4", "kafka4", "Apache Kafka 4")
}

// Kafka4SASL returns the address of a listener of the same broker that wants
// SASL, PLAIN or SCRAM-SHA-512, from the user waybill with the password waybill.
func Kafka4SASL(tb testing.TB) string {
	tb.Helper()
	return lookup(tb, "WAYBILL_TEST_KAFKA4_SASL", "kafka4", "Apache Kafka 4 with SASL")
}

// Kafka4Jars returns the folder of jars from which a test may start a Kafka of
// its own, which it can stop and kill.
func Kafka4Jars(tb testing.TB) string {
	tb.Helper()
	return lookup(tb, "WAYBILL_ENV_KAFKA4_JARS", "kafka4", "jars of Apache Kafka 4")
}

// MySQL9Programs returns the folder of programs from which a test may start a
// MySQL of its own, which it can stop and kill.
func MySQL9Programs(tb testing.TB) string {
	tb.Helper()
	return lookup(tb, "WAYBILL_ENV_MYSQL9_PROGRAMS", "mysql9", "programs of MySQL 9")
}

// Postgres18Programs returns the folder of programs from which a test may start a
// PostgreSQL 18 of its own, which it can stop and kill.
func Postgres18Programs(tb testing.TB) string {
	tb.Helper()
	return lookup(tb, "WAYBILL_ENV_POSTGRES18_PROGRAMS", "postgres18", "programs of PostgreSQL 18")
}

// Redis7 returns the address, host:port, of a Redis 7 server without a password.
func Redis7(tb testing.TB) string {
	tb.Helper()
	return lookup(tb, "WAYBILL_TEST_REDIS7", "redis7", "Redis 7")
}

// DuckDB1 returns the path of the shell of DuckDB 1.
func DuckDB1(tb testing.TB) string {
	tb.Helper()
	return lookup(tb, "WAYBILL_TEST_DUCKDB1", "duckdb1", "DuckDB 1")
}

// Python3 returns the path of a Python 3 with its module sqlite3.
func Python3(tb testing.TB) string {
	tb.Helper()
	const name = "python3"
	path, err := exec.LookPath(name)
	if err == nil {
		err = exec.CommandContext(tb.Context(), path, "-c", "import sqlite3").Run()
	}
	if err != nil {
		const sentence = "there is no %s with sqlite3 to run the example with: %v"
		if required() {
			tb.Fatalf(sentence, name, err)
		}
		tb.Skipf(sentence, name, err)
	}
	return path
}

func lookup(tb testing.TB, variable, name, product string) string {
	tb.Helper()
	if value := os.Getenv(variable); value != "" {
		return value
	}
	const sentence = `%s is not set, so there is no %s to test against: run eval "$(test/env/env up %s)" first`
	if required() {
		tb.Fatalf(sentence, variable, product, name)
	}
	tb.Skipf(sentence, variable, product, name)
	return ""
}

func required() bool { return os.Getenv("CI") != "" || os.Getenv(EnvRequired) != "" }
