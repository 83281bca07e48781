//go:build !race

package sqlite_test

const (
	laneKeys   = 10_000
	modelSteps = 1_000
)
