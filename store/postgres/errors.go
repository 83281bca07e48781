package postgres

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
)

// SQLSTATE codes that are treated apart.
const (
	codeReadOnly            = "25006"
	codeUniqueViolation     = "23505"
	codeSerializationFailed = "40001"
	codeDeadlock            = "40P01"
	codeNoRight             = "42501"
	codeNoTable             = "42P01"
	codeNoSchema            = "3F000"
	codeNoFunction          = "42883"
	codeDiskFull            = "53100"
	codeTooManyConnections  = "53300"
	codeLockTimeout         = "55P03"
	codeWrongPassword       = "28P01"
	codeNoAuthorization     = "28000"
	codeNoDatabase          = "3D000"
)

var hints = map[string]string{
	codeReadOnly:           "the database accepts no writes: connect to the primary, or end its read-only mode",
	codeNoRight:            "grant the account the rights that the package's documentation lists",
	codeNoTable:            "run the migration, and check the schema and the names in the configuration",
	codeNoSchema:           "run the migration, and check the schema in the configuration",
	codeDiskFull:           "the database's disk is full",
	codeTooManyConnections: "raise max_connections, or lower the size of the pools",
	codeLockTimeout:        "a long transaction holds the table: end it, or try again later",
	codeWrongPassword:      "check the user and the password",
	codeNoAuthorization:    "check the user, and pg_hba.conf on the server",
	codeNoDatabase:         "create the database, or check its name in the DSN",
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
	wrapped := &waybill.Error{Op: "postgres: " + op, Key: key, Err: err}
	var refused *pgconn.PgError
	var unreachable *pgconn.ConnectError
	switch {
	case errors.As(err, &refused):
		wrapped.Hint = hints[refused.Code]
		if refused.Code == codeNoTable || refused.Code == codeNoSchema {
			wrapped.Err = fmt.Errorf("%w: %w", store.ErrNoSchema, err)
		}
	case errors.As(err, &unreachable):
		wrapped.Hint = connectHint(err)
	default:
		wrapped.Hint = store.SchemaHint(err)
	}
	return wrapped
}

// connectHint tells a server that does not answer from one that answers, and
// with which TLS does not come about.
func connectHint(err error) string {
	var unverified *tls.CertificateVerificationError
	switch {
	case errors.As(err, &unverified):
		return "the server's certificate cannot be verified: name the authority's file by sslrootcert in the DSN, and the host as the certificate has it"
	case strings.Contains(err.Error(), "server refused TLS connection"):
		return "the DSN demands TLS, which the server does not offer: switch ssl on there, or set sslmode in the DSN"
	}
	return "check that the server runs and that the DSN names its host and port"
}

func codeOf(err error) string {
	var refused *pgconn.PgError
	if errors.As(err, &refused) {
		return refused.Code
	}
	return ""
}

const (
	retries   = 6
	retryBase = 5 * time.Millisecond
)

// retry runs a transaction of our own, again where the database chose it as
// the victim of a deadlock or of serialization.
func retry(ctx context.Context, do func() error) error {
	for attempt := 0; ; attempt++ {
		err := do()
		if code := codeOf(err); attempt == retries || code != codeDeadlock && code != codeSerializationFailed {
			return err
		}
		if pause(ctx, retryBase, attempt) != nil {
			return err
		}
	}
}
