// Package pythonconsumer tests the consumer in Python beside it, which knows
// nothing of this library: it writes the inbox's table by plain SQL.
package pythonconsumer
