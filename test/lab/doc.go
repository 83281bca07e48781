// Package lab has what the tests of this module share: a database of one's
// own, output that can be read while it grows, and waiting for a condition.
package lab
