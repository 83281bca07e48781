package guard

import (
	"context"
	"fmt"
	"maps"
	"strings"
)

// Versioned is a table whose rows carry a version, which grows with each change.
type Versioned struct {
	Table   string
	Key     string // column of the primary key
	Version string // column of the version, an integer
}

// Update is the optimistic lock: it sets columns, and the version to seen+1, of
// a row that is still at the version at which the caller has read it. Otherwise
// the error wraps [ErrConflict]: read again and decide again, which a handler
// does by returning the error.
//
// It protects what was decided on the ground of what was read against other
// writers that do the same. It does not by itself know a repetition: the second
// run of the same handler reads the new version and changes the row again.
func (v Versioned) Update(ctx context.Context, tx Tx, key any, seen int64, set Row) error {
	n, err := v.update(ctx, tx, key, seen+1, set, " = ?", seen)
	if err == nil && n == 0 {
		err = fmt.Errorf("%w: it is not at version %d any more", ErrConflict, seen)
	}
	return failure("update", v.Table, key, err)
}

// Put writes the state of a row at a version, inserting it where it is missing,
// and reports whether it did: a row of the same or a higher version is left
// alone. Events that carry state, and not a change of it, can so come twice and
// in any order: the newest wins.
//
// It protects rows that are written by Put alone. It does not give each version
// its turn: what only an intermediate version said is lost. And it does not suit
// changes such as "add 5", whatever their versions.
func (v Versioned) Put(ctx context.Context, tx Tx, key any, version int64, row Row) (written bool, err error) {
	written, err = v.put(ctx, tx, key, version, row)
	return written, failure("put", v.Table, key, err)
}

func (v Versioned) put(ctx context.Context, tx Tx, key any, version int64, row Row) (bool, error) {
	d := tx.dialect
	there := Unique{Table: v.Table, Key: []string{v.Key}}
	// On MySQL an UPDATE that finds no row may lock the gap where two then want to
	// insert, so a look without a lock comes first.
	if has, err := there.has(ctx, tx, Row{v.Key: key}, ""); err != nil {
		return false, err
	} else if !has {
		// One version lower, so that the update, which tells for sure, finds it.
		full := maps.Clone(row)
		if full == nil {
			full = Row{}
		}
		full[v.Key], full[v.Version] = key, version-1
		statement, args := d.insertion(v.Table, full)
		if _, err := tx.Exec(ctx, statement+d.orNothing(there.Key), args...); err != nil {
			return false, err
		}
	}
	n, err := v.update(ctx, tx, key, version, row, " < ?", version)
	return n > 0, err
}

// update sets columns and the version where the version found fits.
func (v Versioned) update(ctx context.Context, tx Tx, key any, version int64, set Row, fits string, found int64) (int64, error) {
	d := tx.dialect
	assignments, args := d.assignments(set)
	assignments = append(assignments, d.column(v.Version)+" = ?")
	args = append(args, version, key, found)
	return tx.Exec(ctx, "UPDATE "+d.name(v.Table)+" SET "+strings.Join(assignments, ", ")+
		" WHERE "+d.column(v.Key)+" = ? AND "+d.column(v.Version)+fits, args...)
}
