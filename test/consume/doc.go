// Package consume runs consumers over real databases, several at once and with
// sessions that expire under them, and shows that each event has its effect
// once, and each key its order.
package consume
