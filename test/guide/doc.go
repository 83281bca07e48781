// Package guide runs the commands of the guide as a reader would, so that a
// page that no longer works fails a test.
package guide
