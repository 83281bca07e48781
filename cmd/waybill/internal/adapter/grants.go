package adapter

import (
	"fmt"
	"strings"

	"github.com/waybillhq/waybill"
)

// granter is what has rights to give.
type granter interface{ Grants(account string) string }

// Grants returns the script that gives an account the rights of a relay, and
// those of a reader of the log unless source is nil.
func Grants(kind string, st Store, source Source, account string) (string, error) {
	tables, ok := st.(granter)
	if !ok {
		return "", &waybill.Error{Op: "grant", Key: account, Err: fmt.Errorf("%s has no accounts", kind), Hint: "who may write the file may run a relay"}
	}
	if kind != "postgres" {
		account = quoteAccount(account)
	}
	text := tables.Grants(account)
	if log, ok := source.(granter); ok {
		text += "\n" + log.Grants(account)
	}
	return text, nil
}

// quoteAccount writes user@host as MySQL wants it. What is quoted already stays.
func quoteAccount(account string) string {
	if strings.HasPrefix(account, "'") {
		return account
	}
	user, host := account, "%"
	if at := strings.LastIndexByte(account, '@'); at >= 0 {
		user, host = account[:at], account[at+1:]
	}
	quote := func(text string) string {
		return "'" + strings.NewReplacer(`\`, `\\`, "'", "''").Replace(text) + "'"
	}
	return quote(user) + "@" + quote(host)
}
