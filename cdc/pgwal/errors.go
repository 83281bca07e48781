package pgwal

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/waybillhq/waybill/cdc"
)

// SQLSTATE codes that are treated apart.
const (
	codeLockTimeout     = "55P03"
	codeInUse           = "55006"
	codeUndefinedObject = "42704" // a slot, and in a stream the publication
	codeUndefinedFile   = "58P01" // a segment of WAL
	codeDuplicateObject = "42710"
	codeUniqueViolation = "23505"
	codeNoRight         = "42501"
	codeNoAuthorization = "28000"
	codeWrongPassword   = "28P01"
	codeLimit           = "53400" // of slots
	codeTooManySenders  = "53300"
	codeProtocol        = "08P01" // of poolers, for a parameter that they do not know
	codeReadOnly        = "25006"
	classOfIntervention = "57"
	classOfConnections  = "08"
	classOfLackOfRoom   = "53"
	codeLen             = 5
)

const (
	hintReplication = "give the account the attribute REPLICATION (on managed servers the role that stands for it), and let pg_hba.conf admit it to the database"
	hintSlots       = "raise max_replication_slots, or drop slots that nobody uses (see pg_replication_slots)"
	hintDirect      = "name the server itself in cdc.dsn: a pooler does not pass replication through"
	hintSenders     = "raise max_wal_senders or max_connections"
)

var errClosed = errors.New("the stream was closed")

// classify says what the refusal of a command means, whoever sent it.
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
	case codeNoRight:
		return cdc.Refused(cdc.Misconfigured, text, "grant what the script of grants lists")
	case codeNoAuthorization:
		return cdc.Refused(cdc.Misconfigured, text, hintReplication)
	case codeWrongPassword:
		return cdc.Refused(cdc.Misconfigured, text, "check the user and the password")
	case codeLimit:
		return cdc.Refused(cdc.Misconfigured, text, hintSlots)
	case codeTooManySenders:
		return cdc.Refused(cdc.Misconfigured, text, hintSenders)
	case codeReadOnly:
		return cdc.Refused(cdc.Misconfigured, text, "the database accepts no writes: connect to the primary")
	case codeLockTimeout:
		return cdc.Refused(cdc.Blocked, text, "a long transaction is in the way: end it, or wait")
	case codeInUse:
		return cdc.Busy(text)
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return text
	}
	return cdc.Refused(cdc.Unreachable, text, "")
}

func codeOf(err error) string {
	var refused *pgconn.PgError
	if errors.As(err, &refused) {
		return refused.Code
	}
	return ""
}
