// Package follow has relays that follow the write-ahead log of PostgreSQL.
package follow
