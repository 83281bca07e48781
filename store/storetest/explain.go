package storetest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
)

// HotStatement names a statement that runs all the time, or that must stay
// cheap when the tables are large.
type HotStatement string

// The hot statements.
const (
	HotWalk       HotStatement = "walk"
	HotWalkQueue  HotStatement = "walk queue" // all lanes at once, by id
	HotLoad       HotStatement = "load"
	HotLoadRange  HotStatement = "load range" // ids that lie close together
	HotLoadDense  HotStatement = "load dense" // nearly all ids of a range
	HotFetchKey   HotStatement = "fetch key"
	HotFetchDue   HotStatement = "fetch due"
	HotHeldKeys   HotStatement = "held keys"
	HotFrontier   HotStatement = "frontier"
	HotSettle     HotStatement = "settle"
	HotReceipts   HotStatement = "receipts" // of ids that lie close together
	HotForget     HotStatement = "forget"   // of ids that lie close together
	HotCleanup    HotStatement = "cleanup"
	HotFindID     HotStatement = "find by event id"
	HotFindKey    HotStatement = "find by key"
	HotMark       HotStatement = "mark consumed"
	HotKeysHeld   HotStatement = "keys held"
	HotHeldOfKey  HotStatement = "held of key"
	HotReleasable HotStatement = "releasable keys"
	HotNextRetry  HotStatement = "next retry"
)

// HotStatements are all of them.
var HotStatements = []HotStatement{
	HotWalk, HotWalkQueue, HotLoad, HotLoadRange, HotLoadDense, HotFetchKey, HotFetchDue, HotHeldKeys, HotFrontier, HotSettle, HotReceipts, HotForget, HotCleanup,
	HotFindID, HotFindKey, HotMark, HotKeysHeld, HotHeldOfKey, HotReleasable, HotNextRetry,
}

// Plan is how the database runs a statement. The harness brings the planner's
// statistics up to date before it asks.
type Plan struct {
	// Text is the plan as the database prints it. Empty means that the statement
	// has no plan worth a look, as an INSERT, which Why then explains.
	Text, Why string
	// Uses are texts that must stand in it: the names of the intended indexes.
	Uses []string
	// Avoids are texts that must not: a scan of a table, a sort.
	Avoids []string
}

func explainCases[TX any]() []testCase[TX] {
	return []testCase[TX]{{"hot statements use their index", explainHot[TX]}}
}

func explainHot[TX any](t *testing.T, s *suite[TX]) {
	if why := s.harness.Exceptions.Plans; why != "" {
		t.Skipf("needs a planner: %s", why)
	}
	s.open(t)
	if s.Explain == nil {
		t.Fatal("the harness cannot explain, and names no exception")
	}
	s.fill(t)
	for _, statement := range HotStatements {
		t.Run(string(statement), func(t *testing.T) {
			plan, err := s.Explain(t.Context(), statement)
			if err != nil {
				t.Fatal(err)
			}
			if plan.Text == "" {
				if plan.Why == "" {
					t.Fatal("no plan, and no reason why")
				}
				t.Skipf("no plan: %s", plan.Why)
			}
			if len(plan.Uses) == 0 {
				t.Error("the harness names no index that the plan must use")
			}
			for _, index := range plan.Uses {
				if !strings.Contains(plan.Text, index) {
					t.Errorf("%q is not used:\n%s", index, plan.Text)
				}
			}
			for _, step := range plan.Avoids {
				if strings.Contains(plan.Text, step) {
					t.Errorf("%q is in the plan:\n%s", step, plan.Text)
				}
			}
		})
	}
}

// fill gives the tables the shape of a service that has run for a while: most
// events settled, some waiting, some parked, some held at a consumer.
func (s *suite[TX]) fill(t *testing.T) {
	t.Helper()
	const total, keys = 3000, 300
	events := make([]waybill.Event, 0, total)
	for i := range total {
		events = append(events, s.event(fmt.Sprintf("key-%d", i%keys)))
	}
	for batch := range total / 500 {
		s.append(t, events[batch*500:(batch+1)*500]...)
	}
	rows := s.hot(t)
	guard := s.own(t)
	for batch := range 4 {
		s.apply(t, guard, settled(rows[batch*500:(batch+1)*500]...))
	}
	var changes store.Changes
	for i, row := range rows[2000:2300] {
		if i%3 == 0 {
			changes.Parked = append(changes.Parked, row.ID)
			continue
		}
		changes.Failed = append(changes.Failed, failed(row, i%10 == 0, time.Duration(i-150)*time.Minute, "refused").Failed...)
	}
	s.apply(t, guard, changes)
	s.inInbox(t, func(tx store.InboxTx[TX]) {
		states := []store.HeldState{store.HeldRetry, store.HeldBlocked, store.HeldBlocked, store.HeldDead, store.HeldWaiting}
		for i := range 500 {
			held := kept(fmt.Sprintf("held-%d", i), fmt.Sprintf("key-%d", i/5), states[i%5])
			held.RetryIn = time.Duration(i-250) * time.Minute
			hold(t, tx, held)
			mark(t, tx, fmt.Sprintf("marked-%d", i))
		}
	})
}
