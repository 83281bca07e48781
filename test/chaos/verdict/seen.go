package verdict

import "time"

// Types of events that a consumer and the broker refuse, always.
const (
	Poison   = "Poison"
	TooLarge = "TooLarge"
)

// Seen is what a run left behind.
type Seen struct {
	History []Entry
	Shop
	Records []Record
	Back
	// Groups are the consumers'.
	Groups []string
	// Stuck says what did not come to rest after the last fault; empty if all did.
	Stuck string
}

// Shop is the producer's database.
type Shop struct {
	Accounts map[string]Account
	Facts    []Fact // by row
	Queue    []Queued
	Receipts []Receipt
	// Writes are those to the queue, as a trigger of the run's own saw them.
	Writes []Write
	// Owners are the relays that have ever been known, by the id under which they
	// hold leases, and their names.
	Owners map[string]string
}

// Account is a business row, whose every change is one event.
type Account struct{ Version, Amount int64 }

// Fact is an event as the outbox has it.
type Fact struct {
	Row int64
	Intent
}

// Queued is an event that is not settled.
type Queued struct {
	Row     int64
	Status  string
	Retries int
	LastErr string
}

// Receipt is an event that is settled.
type Receipt struct {
	Row     int64
	EventID string
	Outcome string
	Via     string // "poll" or "cdc": what told the relay of it
	Place   string // "topic[partition]@offset"
}

// Write is a change of a queue row: who wrote, and who owned the row's lane.
type Write struct {
	Row        int64
	Who, Owner string
	Status     string
	Retries    int
	LastErr    string
	Gone       bool // the row was deleted
}

// Record is what the topic has.
type Record struct {
	Topic     string
	Partition int32
	Offset    int64
	At        time.Time // when the broker stored it, to the millisecond
	Key       string
	Intent
}

// Back is the consumers' database.
type Back struct {
	Effects  []Effect // in their order
	Models   []Model
	Consumed []Consumed
	Held     []Held
}

// Effect is a row that a handler has inserted.
type Effect struct {
	Group, EventID, Key string
	Version             int64
}

// Model is a row that handlers have added up.
type Model struct {
	Group, Key             string
	Version, Events, Total int64
}

// Consumed is an event that a group has settled.
type Consumed struct {
	Group, EventID, Outcome string
	Duplicates              int64
}

// Held is an event that a group keeps aside.
type Held struct {
	Group, EventID, Key, State string
	Attempts                   int
	FirstErr                   string
}
