package guard

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Machine is a status column that changes along known moves only.
//
// It protects against a move that is made twice, and against one that comes too
// late: a payment of an order that is cancelled. It does not protect an effect
// that is made without asking whether the move was made here, nor one outside
// of the transaction; and a status that is left and reached again looks, to a
// repetition from long ago, as if it had never been left.
type Machine struct {
	Table  string
	Key    string // column of the row's key
	Status string // column of the status
	// Version is a column that counts the moves, from which events take their
	// version. May be empty.
	Version string
	// Moves are the possible next statuses of each status.
	Moves map[string][]string
}

// Step is what a move found and left.
type Step struct {
	// Moved says that this call made the move: the moment for its effects.
	Moved bool
	// Status is the status now.
	Status string
	// Version is the version now, where the machine has one.
	Version int64
}

// Move changes the status of a row from one to another by compare-and-set, and
// sets further columns along with it. A row that is at to already, or at a
// status that can only be reached through it, is left alone: Moved is false and
// the error nil. At any other status, and for a move that is not in Moves, the
// error wraps [ErrState]; without the row, [ErrMissing].
func (m Machine) Move(ctx context.Context, tx Tx, key any, from, to string, set Row) (Step, error) {
	fail := func(err error) error { return failure("move", m.Table, key, err) }
	if !slices.Contains(m.Moves[from], to) {
		return Step{}, fail(fmt.Errorf("%w: there is no move from %s to %s", ErrState, from, to))
	}
	d := tx.dialect
	assignments, args := d.assignments(set)
	assignments = append(assignments, d.column(m.Status)+" = ?")
	args = append(args, to)
	if m.Version != "" {
		assignments = append(assignments, d.column(m.Version)+" = "+d.column(m.Version)+" + 1")
	}
	n, err := tx.Exec(ctx, "UPDATE "+d.name(m.Table)+" SET "+strings.Join(assignments, ", ")+
		" WHERE "+d.column(m.Key)+" = ? AND "+d.column(m.Status)+" = ?", append(args, key, from)...)
	if err != nil {
		return Step{}, fail(err)
	}
	step, err := m.read(ctx, tx, key)
	if err != nil {
		return step, fail(err)
	}
	step.Moved = n > 0
	if !step.Moved && step.Status != to && !m.behind(to, step.Status, from) {
		return step, fail(fmt.Errorf("%w: it is %s, which is neither %s nor after %s", ErrState, step.Status, from, to))
	}
	return step, nil
}

func (m Machine) read(ctx context.Context, tx Tx, key any) (step Step, err error) {
	d := tx.dialect
	columns, into := d.column(m.Status), []any{&step.Status}
	if m.Version != "" {
		columns += ", " + d.column(m.Version)
		into = append(into, &step.Version)
	}
	query := "SELECT " + columns + " FROM " + d.name(m.Table) + " WHERE " + d.column(m.Key) + " = ?"
	if d == MySQL {
		query += " FOR UPDATE" // reads what the update has seen, at any isolation
	}
	err = tx.Scan(ctx, query, []any{key}, into)
	if errors.Is(err, sql.ErrNoRows) {
		err = ErrMissing
	}
	return step, err
}

// behind reports whether status can be reached from to without going through
// without.
func (m Machine) behind(to, status, without string) bool {
	seen := map[string]bool{to: true, without: true}
	for open := []string{to}; len(open) > 0; open = open[1:] {
		for _, next := range m.Moves[open[0]] {
			if next == status {
				return true
			}
			if !seen[next] {
				seen[next] = true
				open = append(open, next)
			}
		}
	}
	return false
}

// Fulfilment is the machine of work that may fail and be tried again: INIT,
// then DOING, then DONE, or FAILED and DOING once more.
func Fulfilment(table, key, status, version string) Machine {
	return Machine{
		Table: table, Key: key, Status: status, Version: version,
		Moves: map[string][]string{"INIT": {"DOING"}, "DOING": {"DONE", "FAILED"}, "FAILED": {"DOING"}},
	}
}
