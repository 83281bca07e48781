// Package plain holds producers in other languages, which the guide shows. They
// know nothing of this library: each inserts one row.
package plain
