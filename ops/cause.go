package ops

import (
	"fmt"
	"strings"
)

// Cause is one thing that is wrong, and what to do about it. Its JSON form is
// stable.
type Cause struct {
	Name  string `json:"name"`  // no-relay, broker-away, dead-events, ...: each has a page in the runbook
	State string `json:"state"` // Yellow or Red
	Text  string `json:"text"`
	Fix   string `json:"fix"` // the next command, or what to look at
}

// Names of causes. Each has a page in the runbook.
const (
	CauseNoRelay          = "no-relay"           // no lane has a live owner
	CauseLanesUnowned     = "lanes-unowned"      // some have none
	CausePendingOld       = "pending-old"        // the oldest pending event is over the limit
	CauseDead             = "dead-events"        // events of the outbox that wait for a decision
	CauseBroker           = "broker-away"        // the relay cannot reach it
	CauseTopic            = "topic-unavailable"  // missing, or access denied
	CauseDatabase         = "database-away"      // the relay cannot read or write it
	CauseInboxUnreadable  = "inbox-unreadable"   // a consumer's database
	CauseConsumerStopped  = "consumer-stopped"   // a group without a live reader
	CauseConsumerDead     = "consumer-dead"      // held events that wait for a decision
	CauseConsumerWaiting  = "consumer-waiting"   // held events that wait for a lower version
	CauseConsumerRetrying = "consumer-retrying"  // held events that fail again and again
	CauseReadOnly         = "database-read-only" // it answers, and cannot be written
	CauseNoTrigger        = "trigger-missing"    // nothing queues what plain SQL inserts
	CauseNotQueued        = "not-queued"         // of one event: nothing will send it
	CauseExternal         = "external-behind"    // the program that delivers instead of relays does not
	CauseLog              = "log-not-followed"   // the database's own log does not help
	CauseFailing          = "failing"            // of one event: attempts fail, or the one before it does
	CauseClock            = "clock"              // of one event: it is from the future
)

// causes collects what is wrong.
type causes struct {
	state string
	all   []Cause
}

func (c *causes) add(state, name, fix, format string, args ...any) {
	c.all = append(c.all, Cause{Name: name, State: state, Text: fmt.Sprintf(format, args...), Fix: fix})
	if c.state != Red {
		c.state = state
	}
}

// relayCause translates a reason of a relay's report.
func relayCause(reason, text string) (name, fix string) {
	switch reason {
	case "broker":
		return CauseBroker, "start the broker, or mend broker.url; sending goes on by itself. Look with: waybill doctor"
	case "topic":
		return CauseTopic, topicFix(text)
	case "cdc":
		return CauseLog, "events are read from the queue meanwhile, a little later. Look with: waybill doctor"
	default:
		return CauseDatabase, "make the database writable again; the relay goes on by itself. Look with: waybill doctor"
	}
}

func topicFix(text string) string {
	topic, _, found := strings.Cut(text, ":")
	if !found {
		topic = "..."
	}
	return "create topic " + topic + " or grant access to it (topics under relay.topics are made when the relay starts); sending goes on by itself"
}

const (
	fixClock      = "synchronise the clocks of the producers' hosts (NTP); order and delivery do not depend on them"
	fixLanes      = "wait for one lease time: running relays take them over; if this stays, look at the relays' logs"
	fixStartRelay = "start one: waybill serve (or waybill relay)"
	fixDead       = "waybill dead list; then waybill dead retry ID --reason TEXT, or waybill dead skip ID --reason TEXT"
)

func fixHeld(verb, group string) string {
	group = word(group)
	return fmt.Sprintf("waybill held list --group %s; then waybill held %s ID --group %s --reason TEXT", group, verb, group)
}

// word writes a text so that a shell takes it as one word: ids are the
// producers' choice, and a command shown here will be pasted.
func word(text string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.:/@+,", r)
	}
	if text != "" && text[0] != '-' && strings.IndexFunc(text, func(r rune) bool { return !plain(r) }) < 0 {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
