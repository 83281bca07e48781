package mysql

import (
	"cmp"
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
)

// Error numbers that are treated apart. Both servers use the same ones.
const (
	codeDiskFull           = 1021
	codeTooManyConnections = 1040
	codeNoDatabaseRight    = 1044
	codeWrongPassword      = 1045
	codeNoDatabase         = 1049
	codeColumnExists       = 1060
	codeDuplicate          = 1062
	codeTableFull          = 1114
	codeNoRight            = 1142
	codeNoColumnRight      = 1143
	codeNoTable            = 1146
	codePacketTooLarge     = 1153
	codeLockTimeout        = 1205
	codeDeadlock           = 1213
	codeNoSpecialRight     = 1227
	codeDeprecated         = 1287
	codeReadOnly           = 1290
	codeNoSavepoint        = 1305
	codeNoXARight          = 1401
	codeNoTriggerRight     = 1419
	codeNoDefiner          = 1449
	codeReadOnlyTx         = 1792
	codeReadOnlyMode       = 1836
)

const (
	hintRights   = "grant the account the rights that the package's documentation lists"
	hintReadOnly = "the server accepts no writes: connect to the primary, or end its read-only mode"
	hintDisk     = "the database's disk is full, or a quota is reached"
	hintMigrate  = "run the migration, and check the database and the names in the configuration"
)

var hints = map[uint16]string{
	codeDiskFull:           hintDisk,
	codeTableFull:          hintDisk,
	codeTooManyConnections: "raise max_connections, or lower the size of the pools",
	codeNoDatabaseRight:    "check the database's name, and grant the account rights on it",
	codeWrongPassword:      "check the user, the password, and from which hosts the account may come",
	codeNoDatabase:         "create the database, or check its name in the DSN",
	codeNoRight:            hintRights,
	codeNoColumnRight:      hintRights,
	codeNoSpecialRight:     hintRights,
	codeNoTable:            hintMigrate,
	codePacketTooLarge:     "raise max_allowed_packet on the server, or append less at a time",
	codeLockTimeout:        "a long transaction holds the rows or the table: end it, or try again later",
	codeReadOnly:           hintReadOnly,
	codeReadOnlyTx:         hintReadOnly,
	codeReadOnlyMode:       hintReadOnly,
	codeNoTriggerRight: "the binary log is on, so making a trigger needs more rights: " +
		"set log_bin_trust_function_creators=1 on the server, or migrate with an account that has SUPER, or migrate with --no-trigger",
	codeNoDefiner: "the account that installed the trigger is gone: create it again, or drop the triggers and migrate with one that stays",
}

// failure wraps what a statement failed with. Errors of the store package pass
// through inside of it.
func failure(op, key string, err error) error {
	if err == nil {
		return nil
	}
	var already *waybill.Error
	if errors.As(err, &already) {
		return err
	}
	wrapped := &waybill.Error{Op: "mysql: " + op, Key: key, Err: err, Hint: cmp.Or(hints[codeOf(err)], store.SchemaHint(err))}
	var unreachable net.Error
	switch {
	case codeOf(err) == codeNoTable || codeOf(err) == codeNoDatabase:
		wrapped.Err = fmt.Errorf("%w: %w", store.ErrNoSchema, err)
	case errors.Is(err, driver.ErrBadConn) || errors.Is(err, mysql.ErrInvalidConn):
		wrapped.Hint = "the connection was lost, or the server has become read-only: check that it runs and is the primary"
	case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
	case errors.As(err, &unreachable):
		wrapped.Hint = "check that the server runs and that the DSN names its host and port"
	}
	return wrapped
}

func codeOf(err error) uint16 {
	var refused *mysql.MySQLError
	if errors.As(err, &refused) {
		return refused.Number
	}
	return 0
}

const (
	retries   = 6
	retryBase = 5 * time.Millisecond
)

// retry runs a transaction of our own, again where the database chose it as
// the victim of a deadlock, or where it waited too long.
func retry(ctx context.Context, do func() error) error {
	for attempt := 0; ; attempt++ {
		err := do()
		if code := codeOf(err); attempt == retries || code != codeDeadlock && code != codeLockTimeout {
			return err
		}
		if pause(ctx, retryBase, attempt) != nil {
			return err
		}
	}
}
