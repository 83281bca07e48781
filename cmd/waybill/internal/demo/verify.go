package demo

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"strings"

	_ "modernc.org/sqlite" // the driver "sqlite"
)

//go:embed verify.sql
var verifySQL string

// Result is what the databases say. Its JSON form is stable.
type Result struct {
	Orders               int `json:"orders"`
	Events               int `json:"events"`
	Applied              int `json:"applied"`
	Dead                 int `json:"dead"`
	RolledBack           int `json:"rolled_back"`
	DuplicatesAbsorbed   int `json:"duplicates_absorbed"`
	Lost                 int `json:"lost"`
	OrderViolations      int `json:"order_violations"`
	DoubleEffects        int `json:"double_effects"`
	RelayKills           int `json:"relay_kills"`
	BrokerOutages        int `json:"broker_outages"`
	Phantoms             int `json:"phantoms"`
	ReadModelDifferences int `json:"read_model_differences"`
	Unsettled            int `json:"unsettled"`

	Seed       uint64   `json:"seed"`
	Seconds    float64  `json:"seconds"`
	Dir        string   `json:"dir,omitempty"`
	Violations []string `json:"violations"` // promises that were broken; never nil

	// Of a server only: what is kept there, or cannot be taken away.
	Database string `json:"database,omitempty"`
	Topic    string `json:"topic,omitempty"`

	samples samples
	scene   scene
}

// samples are events worth a look, for the summary.
type samples struct {
	duplicate string // an event that was delivered more than once
	deadError string
}

// Verify counts in the databases of a folder. Nobody may be writing to them.
func Verify(ctx context.Context, dir string) (*Result, error) { return fileSite(dir).verify(ctx) }

// attachLine is what only files need.
const attachLine = "ATTACH 'inventory.db' AS inventory;\n"

func examineFiles(ctx context.Context, orders, inventory string) (conn *sql.Conn, closeAll func(), err error) {
	db, err := sql.Open("sqlite", orders)
	if err != nil {
		return nil, nil, err
	}
	if conn, err = db.Conn(ctx); err == nil {
		_, err = conn.ExecContext(ctx, "ATTACH ? AS inventory", inventory)
	}
	if err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	return conn, func() { _ = conn.Close(); _ = db.Close() }, nil
}

func (s *site) verify(ctx context.Context) (*Result, error) {
	conn, closeAll, err := s.examine(ctx)
	if err != nil {
		return nil, err
	}
	defer closeAll()
	r := &Result{Violations: []string{}}
	fields := r.fields()
	for _, query := range queries(s.script()) {
		var name string
		var n int
		if err := conn.QueryRowContext(ctx, query).Scan(&name, &n); err != nil {
			return nil, fmt.Errorf("verify: %w", err)
		}
		field, ok := fields[name]
		if !ok {
			return nil, fmt.Errorf("verify: unknown figure %q", name)
		}
		*field = n
	}
	r.judge()
	return r, r.samples.read(ctx, conn, s.qualifier)
}

// queries returns the SELECT statements of a script.
func queries(script string) []string {
	var lines []string
	for line := range strings.Lines(script) {
		if !strings.HasPrefix(line, "--") {
			lines = append(lines, line)
		}
	}
	var found []string
	for _, statement := range strings.Split(strings.Join(lines, ""), ";") {
		if statement = strings.TrimSpace(statement); strings.HasPrefix(statement, "SELECT") {
			found = append(found, statement)
		}
	}
	return found
}

// fields returns where each figure of verify.sql goes.
func (r *Result) fields() map[string]*int {
	return map[string]*int{
		"orders": &r.Orders, "events": &r.Events, "applied": &r.Applied, "dead": &r.Dead, "rolled_back": &r.RolledBack,
		"duplicates_absorbed": &r.DuplicatesAbsorbed, "lost": &r.Lost, "order_violations": &r.OrderViolations,
		"double_effects": &r.DoubleEffects, "relay_kills": &r.RelayKills, "broker_outages": &r.BrokerOutages,
		"phantoms": &r.Phantoms, "read_model_differences": &r.ReadModelDifferences, "unsettled": &r.Unsettled,
	}
}

// judge compares the figures with what was promised.
func (r *Result) judge() {
	promise := func(kept bool, format string, args ...any) {
		if !kept {
			r.Violations = append(r.Violations, fmt.Sprintf(format, args...))
		}
	}
	promise(r.Lost == 0, "%d events are lost: neither applied nor held", r.Lost)
	promise(r.Unsettled == 0, "%d events are still in the queue", r.Unsettled)
	promise(r.OrderViolations == 0, "%d effects are out of order", r.OrderViolations)
	promise(r.DoubleEffects == 0, "%d events had more than one effect", r.DoubleEffects)
	promise(r.Phantoms == 0, "%d traces of something that was rolled back", r.Phantoms)
	promise(r.ReadModelDifferences == 0, "%d orders differ between the orders and the inventory", r.ReadModelDifferences)
	promise(r.Dead == 1, "%d events are dead, the poison event alone should be", r.Dead)
	promise(r.Events == r.Applied+r.Dead, "%d events, but %d applied and %d dead", r.Events, r.Applied, r.Dead)
}

const selectDuplicate = `SELECT event_id FROM inventory.consumed_event WHERE duplicates > 0 ORDER BY event_id LIMIT 1`

const selectDeadError = `SELECT last_error FROM inventory.held_event WHERE state = 'DEAD' LIMIT 1`

func (s *samples) read(ctx context.Context, conn *sql.Conn, qualifier string) error {
	for query, field := range map[string]*string{selectDuplicate: &s.duplicate, selectDeadError: &s.deadError} {
		if err := conn.QueryRowContext(ctx, strings.ReplaceAll(query, "inventory.", qualifier)).Scan(field); err != nil && err != sql.ErrNoRows {
			return err
		}
	}
	return nil
}
