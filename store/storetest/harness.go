package storetest

import (
	"context"
	"fmt"
	"testing"

	"github.com/waybillhq/waybill/store"
)

// Harness describes a store to the suite. TX is the type of the transactions
// that its appender takes and that its consumer's handlers see.
type Harness[TX any] struct {
	// Open opens the store over an empty database of the case's own, with the
	// tables as the options say, and closes it at the end of the test. It is
	// called from several goroutines.
	Open func(t testing.TB, options Options) *Subject[TX]
	// Exceptions are what the database cannot do.
	Exceptions Exceptions
}

// Options say how the tables are made.
type Options struct {
	// NoTrigger leaves out the queue trigger and configures the store so.
	NoTrigger bool
	// Bare leaves out all tables: the case migrates.
	Bare bool
	// Head adds the table of heads and configures the store so.
	Head bool
	// Names are the tables' names; the zero value means the defaults.
	Names store.Names
}

// Subject is an open store, and how the suite uses its database as an
// application would.
type Subject[TX any] struct {
	Outbox   store.Outbox
	Appender store.Appender[TX]
	Consumer store.Consumer[TX]

	// Begin starts an application's transaction, as the adapter's documentation
	// says it should be started. Commit and Rollback end it.
	Begin    func(ctx context.Context) (TX, error)
	Commit   func(ctx context.Context, tx TX) error
	Rollback func(ctx context.Context, tx TX) error
	// Exec runs a statement that knows nothing of waybill; see [Statement.SQL].
	Exec func(ctx context.Context, tx TX, statement Statement) error
	// SetSchemaVersion writes another version into the meta table.
	SetSchemaVersion func(ctx context.Context, version int) error
	// DropHeadTrigger drops the trigger that keeps the heads, as somebody's
	// deployment might.
	DropHeadTrigger func(ctx context.Context) error
	// Explain returns the plan of a hot statement. nil means that the database
	// has no planner, which [Exceptions.Plans] explains.
	Explain func(ctx context.Context, statement HotStatement) (Plan, error)
}

// Exceptions name what a database cannot do, each with a sentence that says
// why. Empty means that it can.
type Exceptions struct {
	// SingleWriter: a second transaction cannot write while one is open.
	SingleWriter string
	// Names: the tables' names cannot be chosen.
	Names string
	// Schemas: the tables cannot be put into a schema of their own.
	Schemas string
	// Microseconds: times are kept to the millisecond.
	Microseconds string
	// Plans: there is no plan to look at.
	Plans string
	// Reuse: an id that was deleted a moment ago, and is inserted again by a
	// transaction that stays open, keeps other inserts waiting. Random operations
	// then leave no transaction open.
	Reuse string
}

// Run runs all cases, and then [RunModel] against [Memory] with a few seeds. The
// cases spend their time waiting for the database, so they run side by side, as
// many as go test's flag -parallel allows.
func Run[TX any](t *testing.T, h Harness[TX]) {
	for _, mode := range []struct {
		name    string
		options Options
	}{
		{"trigger", Options{}},
		{"no trigger", Options{NoTrigger: true}},
	} {
		t.Run(mode.name, func(t *testing.T) {
			for _, role := range []struct {
				name  string
				cases []testCase[TX]
			}{
				{"append", appendCases[TX]()},
				{"plain", plainCases[TX]()},
				{"head", headCases[TX]()},
				{"queue", queueCases[TX]()},
				{"apply", applyCases[TX]()},
				{"lease", leaseCases[TX]()},
				{"position", positionCases[TX]()},
				{"inspect", inspectCases[TX]()},
				{"operate", operateCases[TX]()},
				{"external", externalCases[TX]()},
				{"cleanup", cleanupCases[TX]()},
				{"inbox", inboxCases[TX]()},
				{"progress", progressCases[TX]()},
				{"held", heldCases[TX]()},
				{"effect", effectCases[TX]()},
				{"dead letter", deadLetterCases[TX]()},
				{"horizon", horizonCases[TX]()},
				{"audit", auditCases[TX]()},
				{"readers", readerCases[TX]()},
				{"concurrent", concurrentCases[TX]()},
				{"schema", schemaCases[TX]()},
				{"explain", explainCases[TX]()},
			} {
				t.Run(role.name, func(t *testing.T) {
					t.Parallel()
					for _, c := range role.cases {
						t.Run(c.name, func(t *testing.T) {
							t.Parallel()
							c.run(t, &suite[TX]{harness: h, options: mode.options})
						})
					}
				})
			}
		})
	}
	t.Run("model", func(t *testing.T) {
		for _, seed := range []uint64{1, 2, 3} {
			t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
				t.Parallel()
				RunModel(t, Memory(), h, seed, 100)
			})
		}
	})
}

type testCase[TX any] struct {
	name string
	run  func(t *testing.T, s *suite[TX])
}

// needsTwoWriters skips the case where two transactions cannot write at a time.
func (s *suite[TX]) needsTwoWriters(t *testing.T) {
	t.Helper()
	if why := s.harness.Exceptions.SingleWriter; why != "" {
		t.Skipf("needs two open writing transactions: %s", why)
	}
}
