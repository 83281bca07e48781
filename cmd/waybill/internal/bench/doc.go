// Package bench measures what this build does on this machine.
//
// Each noun of the command is a file here, with a function of the noun's name
// that returns a report. A figure stands beside the limits of the same run: what
// the broker takes without an outbox, what the database gives when it is only
// read, and what a loop does that somebody wrote by hand over the same three
// tables. What is compared runs in turns, so that a machine that is busy with
// other things slows all of it.
//
// Relays and loops run in processes of their own, whose memory and processor
// time are theirs alone; see [RunArm].
//
// All tables are made for the purpose, on a server in a database of its own
// name, and dropped at the end.
package bench
