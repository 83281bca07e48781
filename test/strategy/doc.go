// Package strategy shows over each database what the guards of inbox/guard
// protect, and, since that decides which one to take, what they do not.
package strategy
