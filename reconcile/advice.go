package reconcile

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// meanings say in one sentence what a class is.
var meanings = map[Class]string{
	MissingEvent:  "The row is newer than anything that was sent: others have not heard of its change.",
	OrphanEvent:   "The log tells of a row that is not there, or that is older than the log says.",
	MismatchWrite: "Row and event have one version and different contents.",
	MismatchRead:  "The read model is not what the latest sent event makes of it.",
	InFlight:      "No difference: on its way, and no longer than allowed.",
	Unverified:    "Nothing is proved, neither that it is right nor that it is wrong.",
}

// nextStep says what to do about a finding, by its class and first cause. KEY
// in it stands for the key.
func nextStep(class Class, code Code) string {
	switch {
	case class == MismatchWrite && code == Content:
		return "was the row edited by hand, or the event? Set right the one that is wrong, by a write that makes an event"
	case class == Unverified && code == LogExpired:
		return "the log keeps too little to prove it: keep events longer, or compare the row with the read model"
	}
	switch code {
	case NeverWritten, Gap:
		return "find the code path that changes the row without appending an event; then issue the event"
	case NeverQueued:
		return "is the queue trigger installed? waybill doctor --requeue queues such events"
	case Stuck:
		return "is the relay running, and the broker there? waybill status says so"
	case Dead:
		return "see why with waybill dead list; then waybill dead retry or dead skip"
	case Skipped:
		return "somebody skipped it: waybill audit list says who and why"
	case RowGone:
		return "the event was removed after it was written: restore it from the archive or a backup"
	case UnknownState:
		return "name this word under sent, pending, dead or skipped of the check's log"
	case NoRow:
		return "was the row deleted by hand? Restore it, or publish an event that says it is gone"
	case AheadOfRow:
		return "was the row set back by hand or by a restore? Bring it to the log's version, or void the later event"
	case DeletedInLog:
		return "is the row back, or was the delete never carried out? Delete it, or publish that it exists"
	case Content, Absent, Behind, Extra, Ahead, SetBack, NotRemoved:
		return "see all three sides with waybill reconcile explain KEY; waybill reconcile rebuild KEY sets the read model right"
	case HeldDead, Blocked:
		return "see the failure with waybill held list; then waybill held retry or held skip"
	case HeldWaiting:
		return "look for the version it waits for; it may be missing in the log"
	case HeldRetry, HeldBlocked, Pending, Sent, AgainstRow:
		return "nothing yet: it becomes a difference if it does not arrive in time"
	case NotRead:
		return "see the error; the range is compared again by the next run"
	case NoSuchPast:
		return "the log lacks the version that the read model is at: was the event removed?"
	}
	return ""
}

// forKey puts a key into the commands of a step, as a shell takes it.
func forKey(step string, key Key) string {
	if !strings.Contains(step, "KEY") {
		return step
	}
	parts := make([]string, len(key.parts))
	for i := range key.parts {
		parts[i] = shellWord(Key{parts: key.parts[i : i+1]}.String())
	}
	return strings.ReplaceAll(step, "KEY", strings.Join(parts, " "))
}

func shellWord(text string) string {
	plain := text != "" && text[0] != '-' && strings.Trim(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:/@+=,") == ""
	if plain {
		return text
	}
	word := "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
	if oneLine(text) != text { // the form that shells have for what cannot be shown
		word = "$'" + strings.ReplaceAll(strings.Trim(strconv.QuoteToASCII(text), `"`), "'", `\'`) + "'"
	}
	if strings.HasPrefix(text, "-") {
		return "-- " + word
	}
	return word
}

// reason tells the rule that led to a verdict, so that nobody needs to take it
// on trust.
func reason(class Class, code Code, check *Check) string {
	if check == nil {
		check = &Check{}
	}
	snapshot := "row and log were read in one snapshot, so nothing came in between"
	if check.Split {
		snapshot = "row and log were read one after the other, so something may have come in between"
	}
	switch code {
	case NeverWritten:
		return snapshot
	case Stuck:
		return fmt.Sprintf("an event may wait for the relay for %s, and this one has waited longer", span(check.Exemption))
	case NeverQueued:
		return "only what has a queue row is sent, and this event has none"
	case Dead:
		return "the relay has given up on it; it goes out only if somebody says so"
	case Skipped:
		return "a skipped event is not sent: consumers have not had its content"
	case RowGone:
		return "the outbox recorded this version beside its events, and the event is no longer there"
	case Gap:
		return "the check says density: every_version, so each version up to the row's must have been sent"
	case UnknownState:
		return "a word that the check does not name counts as not sent"
	case NoRow:
		return snapshot + "; no event says that the row is gone"
	case AheadOfRow:
		return snapshot + "; an event must not be ahead of its row"
	case DeletedInLog:
		return "the log's latest event is of a type that the check lists under deletes"
	case Content:
		if class == MismatchWrite {
			return "versions are equal, so contents must be; they were compared by value, in one snapshot"
		}
		return "the read model says that it shows this version, so it must have its content"
	case Absent, Behind, NotRemoved:
		return fmt.Sprintf("a consumer has %s from the first event that it has not applied, and that time is over", span(check.Deadline))
	case Ahead, Extra:
		return "the log was read once more after the read model, and has no event that could have made this"
	case SetBack:
		return "the consumer's books say applied, and its table does not show it"
	case HeldDead, Blocked:
		return "the consumer's own inbox says so: it will not apply this event by itself"
	case HeldRetry, HeldBlocked:
		return "the consumer's own inbox says so: it will try again"
	case HeldWaiting:
		return fmt.Sprintf("the consumer waits for an earlier version; that counts as on its way for %s", span(check.Deadline))
	case Pending:
		return fmt.Sprintf("an event may wait for the relay for %s", span(check.Exemption))
	case Sent:
		return fmt.Sprintf("a consumer has %s from the first event that it has not applied", span(check.Deadline))
	case AgainstRow:
		return fmt.Sprintf("without a log the row's own age counts: %s for relay and consumer together", span(check.Exemption+check.Deadline))
	case LogExpired:
		return fmt.Sprintf("events are kept for %s, and this was written before", span(check.LogRetention))
	case NotRead:
		return "what was not read is not equal"
	case NoSuchPast:
		return "the content of that version can no longer be known"
	}
	return ""
}

// span writes a setting as people write it in a check: 5m, not 5m0s.
func span(d time.Duration) string {
	text := d.String()
	if short, ok := strings.CutSuffix(text, "m0s"); ok {
		text = short + "m"
	}
	if short, ok := strings.CutSuffix(text, "h0m"); ok {
		text = short + "h"
	}
	return text
}
