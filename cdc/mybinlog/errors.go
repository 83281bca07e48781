package mybinlog

import (
	"context"
	"errors"
	"fmt"

	wire "github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-sql-driver/mysql"

	"github.com/waybillhq/waybill/cdc"
)

// Error numbers that are treated apart. Both servers use the same ones.
const (
	codeTooManyConnections = 1040
	codeNoDatabaseRight    = 1044
	codeWrongPassword      = 1045
	codeNoDatabase         = 1049
	codeSyntax             = 1064
	codeNoRight            = 1142
	codeNoColumnRight      = 1143
	codeNoTable            = 1146
	codeLockTimeout        = 1205
	codeNoSpecialRight     = 1227
	codeLogUnreadable      = 1236
	codeReadOnly           = 1290
	codeReadOnlyMode       = 1836
	codeSameServerID       = 4052 // MariaDB
)

const (
	hintGrants  = "grant the account REPLICATION SLAVE and REPLICATION CLIENT ON *.*, SELECT on the table of events, and SELECT, INSERT and UPDATE on that of settings"
	hintPrimary = "the database accepts no writes: connect to the primary"
)

// classify says what the refusal of a statement means, whichever library it
// came through.
func classify(op string, err error) error {
	if err == nil {
		return nil
	}
	var already *cdc.Error
	if errors.As(err, &already) {
		return err
	}
	text := fmt.Errorf("%s: %w", op, err)
	switch codeOf(err) {
	case codeNoDatabaseRight, codeNoRight, codeNoColumnRight, codeNoSpecialRight:
		return cdc.Refused(cdc.Misconfigured, text, hintGrants)
	case codeWrongPassword: // also what MariaDB says where a right is missing
		return cdc.Refused(cdc.Misconfigured, text, "check the user and the password, and "+hintGrants)
	case codeNoDatabase, codeNoTable:
		return cdc.Refused(cdc.Misconfigured, text, "run the migration, and check the names in the configuration")
	case codeTooManyConnections:
		return cdc.Refused(cdc.Misconfigured, text, "raise max_connections")
	case codeReadOnly, codeReadOnlyMode:
		return cdc.Refused(cdc.Misconfigured, text, hintPrimary)
	case codeLockTimeout:
		return cdc.Refused(cdc.Blocked, text, "a long transaction is in the way: end it, or wait")
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return text
	}
	return cdc.Refused(cdc.Unreachable, text, "")
}

func codeOf(err error) uint16 {
	var refused *mysql.MySQLError
	if errors.As(err, &refused) {
		return refused.Number
	}
	var sent *wire.MyError
	if errors.As(err, &sent) {
		return sent.Code
	}
	return 0
}
