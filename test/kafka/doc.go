// Package kafka stops and kills a real Kafka under a relay and a reader, and
// shows that every event arrives, in the order of its key, without anybody's help.
package kafka
