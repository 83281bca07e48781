package mybinlog

import (
	"errors"
	"net/url"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/waybillhq/waybill"
)

// parseDSN accepts what the store accepts: the driver's own form,
// user:password@tcp(host:port)/database, and URLs that begin with mysql:// or
// mariadb://.
func parseDSN(dsn string) (*mysql.Config, error) {
	text, err := driverDSN(dsn)
	var settings *mysql.Config
	if err == nil {
		settings, err = mysql.ParseDSN(text)
	}
	if err == nil && settings.DBName == "" {
		err = errors.New("it names no database")
	}
	if err != nil {
		// The cause could quote the DSN, and the password with it.
		return nil, &waybill.Error{
			Op: "configure mybinlog", Err: errors.New("the DSN cannot be understood, or names no database"),
			Hint: "write user:password@tcp(host:3306)/database, or mysql://user:password@host:3306/database with special characters escaped as in a URL",
		}
	}
	settings.ParseTime, settings.Loc = true, time.UTC
	settings.MultiStatements = false
	settings.InterpolateParams = true
	settings.Logger = &mysql.NopLogger{} // what it would log is returned as well
	return settings, nil
}

func driverDSN(dsn string) (string, error) {
	if !strings.HasPrefix(dsn, "mysql://") && !strings.HasPrefix(dsn, "mariadb://") {
		return dsn, nil
	}
	parsed, err := url.Parse(dsn)
	if err != nil {
		return "", err
	}
	settings := mysql.NewConfig()
	settings.Net, settings.Addr = "tcp", parsed.Host
	if parsed.Port() == "" {
		settings.Addr += ":3306"
	}
	settings.User = parsed.User.Username()
	settings.Passwd, _ = parsed.User.Password()
	settings.DBName = strings.TrimPrefix(parsed.Path, "/")
	text := settings.FormatDSN()
	if parsed.RawQuery == "" {
		return text, nil
	}
	if strings.Contains(text[strings.LastIndex(text, "/"):], "?") {
		return text + "&" + parsed.RawQuery, nil
	}
	return text + "?" + parsed.RawQuery, nil
}
