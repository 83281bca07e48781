// Package membroker is a broker in memory. It keeps partitioned topics, shares
// partitions among the members of a group, remembers committed positions, and
// passes the suite of package brokertest, so a test may trust it in the place of
// a real one.
//
// It starts no goroutine and waits only on channels, so it runs inside a
// testing/synctest bubble when it was made there.
//
// What a test wants to go wrong is set on the [Broker]: [Broker.Outage],
// [Broker.DenyTopic], [Broker.Refuse], [Broker.Lose], [Broker.Mute],
// [Broker.Delay], or, for anything else, [Broker.SetFault] and
// [Broker.SetGate]. What happened is read with [Broker.Records],
// [Broker.Committed], [Broker.Calls] and [Broker.Violations], and awaited with
// [Broker.Wait] and [Broker.WaitRecords].
package membroker
