// Package waybilltest has assertions for tests of code that writes or consumes
// events.
//
// [RequireAppended] and [RequireNothing] look into the outbox after the code
// under test has committed. [AwaitSettled] and [AwaitApplied] wait until the
// relay or a consumer is done with an event, and fail as soon as it is known
// that they never will be. [EventLog] writes events as lines that do not change
// from run to run, for [RequireGolden].
//
// They read through the store's contracts, so they work on a real database as
// well as on the one in memory, the package memstore.
package waybilltest
