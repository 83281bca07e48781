package guard

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
)

// Unique is a business key that a table takes once: the payment number of a
// provider, which stays the same when the event id does not.
//
// It protects against the repetition of a fact under any event id, from any
// caller. It does not protect an effect in other tables whose key is another;
// nor against a key that the other side gives out twice, which Same finds.
type Unique struct {
	Table string
	Key   []string // columns of a primary or unique key
	// Same are columns in which a repetition must agree with what is there: the
	// amount. A payment number with another amount is no repetition.
	Same []string
}

// Insert inserts the row and reports true. If the key is there already it
// changes nothing and reports false, or, where a column of Same differs, fails
// with an error that wraps [ErrConflict]. It waits for another transaction that
// is inserting the same key.
func (u Unique) Insert(ctx context.Context, tx Tx, row Row) (first bool, err error) {
	keyText := make([]string, len(u.Key))
	for i, column := range u.Key {
		keyText[i] = fmt.Sprint(row[column])
	}
	fail := func(err error) error { return failure("insert", u.Table, strings.Join(keyText, "/"), err) }
	if first, err = u.insert(ctx, tx, row); err != nil || first {
		return first, fail(err)
	}
	if len(u.Same) == 0 {
		return false, nil
	}
	d := tx.dialect
	where, args := d.equals(row, append(append([]string{}, u.Key...), u.Same...))
	var n int64
	if err := tx.Scan(ctx, "SELECT COUNT(*) FROM "+d.name(u.Table)+" WHERE "+where+d.share(), args, []any{&n}); err != nil {
		return false, fail(err)
	}
	if n == 0 {
		return false, fail(fmt.Errorf("%w: it is there with another %s", ErrConflict, strings.Join(u.Same, " or ")))
	}
	return false, nil
}

func (u Unique) insert(ctx context.Context, tx Tx, row Row) (bool, error) {
	d := tx.dialect
	statement, args := d.insertion(u.Table, row)
	if d != MySQL {
		n, err := tx.Exec(ctx, statement+d.orNothing(u.Key), args...)
		return n > 0, err
	}
	// MySQL has no such clause. INSERT IGNORE would swallow every other fault of
	// the row too, and what ON DUPLICATE KEY UPDATE counts depends on a flag of the
	// connection. So the key is looked for first; who inserts it in between makes
	// this insertion wait and then fail, which ends the statement alone.
	if there, err := u.has(ctx, tx, row, ""); err != nil || there {
		return false, err
	}
	_, err := tx.Exec(ctx, statement, args...)
	if err == nil {
		return true, nil
	}
	if strings.Contains(err.Error(), "Error 1062") {
		if there, readErr := u.has(ctx, tx, row, d.share()); readErr == nil && there {
			return false, nil
		}
	}
	return false, err
}

// has reports whether the key is there.
func (u Unique) has(ctx context.Context, tx Tx, row Row, lock string) (bool, error) {
	where, args := tx.dialect.equals(row, u.Key)
	var one int
	err := tx.Scan(ctx, "SELECT 1 FROM "+tx.dialect.name(u.Table)+" WHERE "+where+lock, args, []any{&one})
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}
