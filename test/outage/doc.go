// Package outage cuts the connection between a relay and a real database and
// shows that the relay waits, says so with measure, and goes on by itself.
package outage
