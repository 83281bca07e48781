package sqlite

// Statement is one statement of the store, for those who want to read it or to
// look at its plan.
type Statement struct {
	Name string // "fetch", "apply: write receipts"
	Text string
}

// Statements returns the store's statements as they are run, with its names.
// Those that Find and Append put together for each call are not among them.
func (s *Store) Statements() []Statement {
	named := make([]Statement, len(catalogue))
	for i, entry := range catalogue {
		named[i] = Statement{entry.Name, s.text(entry.Text)}
	}
	return named
}

var catalogue = []Statement{
	{"ping", pingSQL},
	{"meta: tables", metaTablesSQL},
	{"meta: version", metaVersionSQL},
	{"meta: set version", metaSetVersionSQL},

	{"append", appendOneSQL},
	{"append: queue", appendQueueSQL},
	{"append: heads", headListedSQL},
	{"existing", existingSQL},
	{"fill heads", fillHeadsSQL},
	{"head", headSQL},

	{"walk", walkSQL},
	{"load", loadSQL},
	{"fetch key", fetchKeySQL},
	{"fetch due", fetchDueSQL},
	{"held keys", heldKeysSQL},
	{"frontier", frontierSQL},
	{"apply: compare leases", guardSQL},
	{"apply: find strangers", strangersSQL},
	{"apply: write receipts", settleReceiptSQL},
	{"apply: delete settled", settleSQL},
	{"apply: forget events", forgetEventSQL},
	{"apply: forget receipts", forgetReceiptSQL},
	{"apply: fail", failSQL},
	{"apply: park", parkSQL},

	{"renew: relay", renewRelaySQL},
	{"renew: leases", renewLeasesSQL},
	{"renew: forget relays", forgetRelaysSQL},
	{"renew: count relays", countRelaysSQL},
	{"claim", claimSQL},
	{"release", releaseSQL},
	{"leave: leases", leaveLeasesSQL},
	{"leave: relay", leaveRelaySQL},
	{"list leases", listLeasesSQL},
	{"list relays", listRelaysSQL},

	{"list positions", listPositionsSQL},
	{"save position", savePositionSQL},
	{"save position: none", deletePositionSQL},
	{"read mode", readModeSQL},
	{"set mode", setModeSQL},
	{"set mode: none", deleteModeSQL},

	{"counts", countsSQL},
	{"orphans", orphansSQL},

	{"operate: find", operateFindSQL},
	{"operate: make due", dueSQL},
	{"operate: skip dead", skipDeadSQL},
	{"operate: requeue", requeueSQL},
	{"operate: record", recordSQL},
	{"audit", auditSQL},

	{"cleanup: look", cleanupLookSQL},
	{"cleanup: choose", cleanupChooseSQL},
	{"cleanup: archive", cleanupArchiveSQL},
	{"cleanup: delete events", cleanupEventsSQL},
	{"cleanup: delete receipts", cleanupReceiptsSQL},
	{"cleanup consumed: choose", consumedChooseSQL},
	{"cleanup consumed: delete effects", consumedEffectsSQL},
	{"cleanup consumed: move horizon", moveHorizonSQL},
	{"cleanup consumed: delete", consumedDeleteSQL},

	{"mark consumed", markConsumedSQL},
	{"count duplicate", countDuplicateSQL},
	{"is consumed", isConsumedSQL},
	{"mark all", markAllSQL},
	{"unmark", unmarkSQL},
	{"read progress", readProgressSQL},
	{"list progress", listProgressSQL},
	{"list progress of tenants", listTenantsProgressSQL},
	{"advance progress: compare", strayProgressSQL},
	{"advance progress: write", writeProgressSQL},
	{"advance progress: write one", setProgressSQL},
	{"advance progress: any waiting", anyWaitingSQL},
	{"advance progress: wake", wakeSQL},
	{"keys held: any", anyHeldSQL},
	{"keys held: key", keyHeldSQL},
	{"held of key", heldOfKeySQL},
	{"hold", holdSQL},
	{"update held", updateHeldSQL},
	{"delete held", deleteHeldSQL},

	{"effects of", effectsOfSQL},
	{"begin effect", beginEffectSQL},
	{"finish effect", finishEffectSQL},
	{"forget effect", forgetEffectSQL},
	{"renew effect", renewEffectSQL},
	{"unsent dead", unsentDeadSQL},
	{"note dead letter", noteDeadLetterSQL},
	{"horizon", horizonSQL},

	{"releasable keys", releasableKeysSQL},
	{"next retry", nextRetrySQL},
	{"list held", listHeldSQL},
	{"count held", countHeldSQL},
	{"find consumed", findConsumedSQL},
	{"groups", groupsSQL},

	{"claim reader: make", makeReaderSQL},
	{"claim reader: read", readReaderSQL},
	{"claim reader", claimReaderSQL},
	{"renew readers: member", renewMemberSQL},
	{"renew readers: forget members", forgetMembersSQL},
	{"renew readers: count members", countMembersSQL},
	{"renew readers", renewReadersSQL},
	{"mark reader", markReaderSQL},
	{"release reader", releaseReaderSQL},
	{"leave readers", leaveReadersSQL},
	{"leave readers: member", leaveMemberSQL},
	{"list readers", listReadersSQL},
}
