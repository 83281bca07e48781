package mysql

import (
	"context"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/waybillhq/waybill/store"
)

// A name may be any bytes. Each server has a way of its own to write them as text.
const (
	listPreparedSQL      = `XA RECOVER CONVERT XID`
	listPreparedMariaSQL = `XA RECOVER FORMAT='SQL'`
)

// Without the right XA_RECOVER_ADMIN, MySQL names none. Who may see the running
// transactions sees those that have no session.
const countPreparedSQL = `SELECT COUNT(*) FROM information_schema.INNODB_TRX WHERE trx_mysql_thread_id = 0`

// ListPrepared returns the server's prepared transactions.
func (s *Store) ListPrepared(ctx context.Context) ([]store.PreparedTransaction, error) {
	text := listPreparedSQL
	if !s.dialect.of {
		text = listPreparedMariaSQL
	}
	var found []store.PreparedTransaction
	rows, err := s.pool().query(ctx, text)
	if err == nil {
		err = each(rows, func() error {
			var format, global, branch int
			var data string
			if err := rows.Scan(&format, &global, &branch, &data); err != nil {
				return err
			}
			name, err := xid(format, global, data)
			found = append(found, store.PreparedTransaction{Name: name, Commit: "XA COMMIT " + name, Rollback: "XA ROLLBACK " + name})
			return err
		})
	}
	if code := codeOf(err); code == codeNoXARight || code == codeNoSpecialRight {
		return s.countPrepared(ctx)
	}
	return found, failure("list prepared", "", err)
}

func (s *Store) countPrepared(ctx context.Context) ([]store.PreparedTransaction, error) {
	var n int
	_, err := s.pool().one(ctx, countPreparedSQL, nil, &n)
	if code := codeOf(err); code == codeNoSpecialRight || code == codeNoRight {
		return nil, nil
	}
	return make([]store.PreparedTransaction, n), failure("count prepared", "", err)
}

// xid writes a name as XA COMMIT takes it. MariaDB has done so already.
func xid(format, global int, data string) (string, error) {
	digits, isHex := strings.CutPrefix(data, "0x")
	if !isHex {
		return data, nil
	}
	bytes, err := hex.DecodeString(digits)
	if err != nil || len(bytes) < global {
		return "", fmt.Errorf("the name %q of a prepared transaction cannot be read", data)
	}
	return fmt.Sprintf("%s,%s,%d", literal(bytes[:global]), literal(bytes[global:]), format), nil
}

// literal is readable where the bytes are.
func literal(bytes []byte) string {
	for _, c := range bytes {
		if c < ' ' || c > '~' || c == '\'' || c == '\\' {
			return fmt.Sprintf("X'%x'", bytes)
		}
	}
	return "'" + string(bytes) + "'"
}
