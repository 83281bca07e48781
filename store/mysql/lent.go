package mysql

import (
	"context"

	"github.com/waybillhq/waybill/internal/sqlverb"
)

// isLent reports whether a transaction is open that only the one who began it
// may end.
func (c *guardedConn) isLent() bool { return c.open && !c.ours }

// lends says why a handler's statement is not accepted, or nil.
func (c *guardedConn) lends(ctx context.Context, query string) error {
	if !c.isLent() {
		return nil
	}
	if sqlverb.MySQL.Any(query, ends) {
		return errNotYours
	}
	return c.doubt(ctx, sqlverb.MySQL.Any(query, mayEnd))
}

// ends reports whether a statement ends a transaction, as most that define
// something do.
func ends(words sqlverb.Words) bool {
	switch words[0] {
	case "COMMIT", "BEGIN", "START", "XA", "ALTER", "TRUNCATE", "RENAME", "LOCK", "UNLOCK", "GRANT", "REVOKE",
		"ANALYZE", "CHECK", "OPTIMIZE", "REPAIR", "CACHE", "FLUSH", "RESET", "INSTALL", "UNINSTALL":
		return true
	case "CREATE", "DROP":
		return words[1] != "TEMPORARY"
	case "ROLLBACK":
		return words[1] != "TO" && words[2] != "TO"
	case "SET":
		return words[1] == "AUTOCOMMIT" || words[2] == "AUTOCOMMIT"
	}
	return false
}

// mayEnd reports whether a statement runs others, which nobody sees.
func mayEnd(words sqlverb.Words) bool { return words[0] == "CALL" || words[0] == "EXECUTE" }

// The end of a transaction takes its savepoints with it.
const (
	setCanarySQL     = `SAVEPOINT waybill_canary`
	releaseCanarySQL = `RELEASE SAVEPOINT waybill_canary`
)

// doubt prepares for a statement that may end the transaction: before the next
// one is accepted it is looked after.
func (c *guardedConn) doubt(ctx context.Context, mayEnd bool) error {
	if !mayEnd || !c.isLent() {
		return nil
	}
	if _, err := c.bareConn.ExecContext(ctx, setCanarySQL, nil); err != nil {
		return c.note(ctx, err)
	}
	c.unsure = true
	return nil
}

// isGone reports whether the transaction ended since doubt. One that cannot be
// asked is a dead one for note.
func (c *guardedConn) isGone() bool {
	ctx, cancel := context.WithTimeout(context.Background(), killTimeout)
	defer cancel()
	_, err := c.bareConn.ExecContext(ctx, releaseCanarySQL, nil)
	if err != nil && codeOf(err) != codeNoSavepoint {
		c.died = true
	}
	return codeOf(err) == codeNoSavepoint
}
