package bench

import (
	"math"
	"slices"
)

// median of figures; of an even number of them the mean of the middle two.
func median(figures []float64) float64 {
	if len(figures) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(figures))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// quantile returns the figure below which a share q of the sorted figures lies.
func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(math.Ceil(q*float64(len(sorted)))), len(sorted))-1]
}

// ratio returns a / b, or 0 where b is nothing.
func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

// round cuts a figure to a precision that it can claim.
func round(figure float64, digits int) float64 {
	scale := math.Pow10(digits)
	return math.Round(figure*scale) / scale
}

// of collects one figure of each part.
func of[T any](parts []T, figure func(*T) float64) []float64 {
	figures := make([]float64, len(parts))
	for i := range parts {
		figures[i] = figure(&parts[i])
	}
	return figures
}

// repeat does the runs one after another, up to the first that fails.
func repeat[T any](runs int, do func(n int) (*T, error)) (done []T, err error) {
	for n := range runs {
		run, err := do(n)
		if err != nil {
			return done, err
		}
		done = append(done, *run)
	}
	return done, nil
}
