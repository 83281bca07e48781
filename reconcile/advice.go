package reconcile

// nextStep says what to do about a finding, by its class and first cause.
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
		return "somebody skipped it: waybill audit says who and why"
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
