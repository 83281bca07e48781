// Package wal has what PostgreSQL does to the log of a reader that was away: to a
// server of its own, whose limits it can set and which it can replace.
package wal
