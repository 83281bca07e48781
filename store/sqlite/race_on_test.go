//go:build race

package sqlite_test

// Under the race detector the driver, which is translated C, is far slower.
const (
	laneKeys   = 1_000
	modelSteps = 200
)
