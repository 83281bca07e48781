package mybinlog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	wire "github.com/go-mysql-org/go-mysql/mysql"

	"github.com/waybillhq/waybill/cdc"
)

// Names that are missing on a server are missing in the answer.
const variablesSQL = `
SHOW GLOBAL VARIABLES WHERE Variable_name IN (
    'version', 'log_bin', 'server_id', 'binlog_format', 'binlog_row_image', 'binlog_row_metadata', 'binlog_order_commits',
    'gtid_mode', 'lower_case_table_names',
    'binlog_expire_logs_seconds', 'expire_logs_days')`

// server is what a look at the server has found.
type server struct {
	values map[string]string
	flavor string
}

func (s *Source) look(ctx context.Context) (server, error) {
	found := server{values: make(map[string]string)}
	rows, err := s.db.QueryContext(ctx, variablesSQL)
	if err != nil {
		return found, classify("look at the server", err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var name, value string
		if err := rows.Scan(&name, &value); err != nil {
			return found, classify("look at the server", err)
		}
		found.values[strings.ToLower(name)] = value
	}
	found.flavor = flavorOf(found.values["version"])
	return found, classify("look at the server", rows.Err())
}

func (f server) isMaria() bool { return f.flavor == wire.MariaDBFlavor }

// Not among the variables, whose values are cut off there.
const (
	endSQL      = `SELECT @@GLOBAL.gtid_executed`
	endMariaSQL = `SELECT @@GLOBAL.gtid_binlog_pos`
)

// end is the position after all that is logged.
func (s *Source) end(ctx context.Context, found server) (string, error) {
	text := endSQL
	if found.isMaria() {
		text = endMariaSQL
	}
	var end string
	err := s.db.QueryRowContext(ctx, text).Scan(&end)
	return flat(end), classify("find the end of the log", err)
}

func (f server) number(name string) int64 {
	n, err := strconv.ParseInt(f.values[name], 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// expiry is how long the server keeps its log; 0 for ever, or as long as it does
// by other means.
func (f server) expiry() time.Duration {
	if seconds := f.number("binlog_expire_logs_seconds"); seconds > 0 {
		return time.Duration(seconds) * time.Second
	}
	if days, err := strconv.ParseFloat(f.values["expire_logs_days"], 64); err == nil {
		return time.Duration(days * 24 * float64(time.Hour))
	}
	return 0
}

func (f server) tables(c Config) tables {
	return tables{schema: c.Schema, event: c.Event, meta: c.Meta, fold: f.number("lower_case_table_names") > 0}
}

// Setup checks the server's settings. There is nothing to create.
func (s *Source) Setup(ctx context.Context) error {
	found, err := s.look(ctx)
	if err != nil {
		return err
	}
	for _, check := range s.settingsChecks(found) {
		if !check.OK {
			return cdc.Refused(cdc.Misconfigured, errors.New(check.Name+": "+check.Detail), check.Hint)
		}
	}
	s.ordered.Store(!found.isMaria() && found.values["binlog_order_commits"] == "ON")
	if check := s.checkTables(ctx); !check.OK {
		return cdc.Refused(cdc.Misconfigured, errors.New(check.Detail), check.Hint)
	}
	return nil
}

// Check examines what streams need, for the doctor.
func (s *Source) Check(ctx context.Context) []cdc.Check {
	found, err := s.look(ctx)
	if err != nil {
		return []cdc.Check{{Name: "reachable", Detail: err.Error()}}
	}
	checks := append(s.settingsChecks(found), s.checkTables(ctx), s.checkFilters(ctx), s.checkRights(ctx), checkExpiry(found))
	if found.values["binlog_row_metadata"] != "FULL" {
		checks = append(checks, cdc.Check{
			Name: "binlog_row_metadata", OK: true, Detail: found.values["binlog_row_metadata"] + ": columns are found in the catalogue",
			Hint: "with FULL the log names its columns itself, also for what was logged before a table was changed",
		})
	}
	return checks
}

// settingsChecks are those without which no stream works.
func (s *Source) settingsChecks(found server) []cdc.Check {
	checks := []cdc.Check{
		found.check("log_bin", "write a binary log: start the server with log_bin", "ON", "1"),
		found.check("binlog_format", "set binlog_format=ROW for the server, and restart the applications' connections", "ROW"),
	}
	if !found.isMaria() {
		checks = append(checks, found.check("gtid_mode", "set gtid_mode=ON, step by step as the server's manual says", "ON"))
	}
	id := cdc.Check{Name: "server_id", OK: true, Detail: found.values["server_id"]}
	if found.number("server_id") == 0 {
		id.OK, id.Hint = false, "give the server a server_id other than 0: it sends its log to nobody without one"
	}
	if s.config.ServerID != 0 && int64(s.config.ServerID) == found.number("server_id") {
		id.OK, id.Detail, id.Hint = false, fmt.Sprintf("%d is the server's own", s.config.ServerID), "choose another server_id for cdc, or none"
	}
	return append(checks, id)
}

func (f server) check(name, hint string, want ...string) cdc.Check {
	value := f.values[name]
	if slices.Contains(want, strings.ToUpper(value)) {
		return cdc.Check{Name: name, OK: true, Detail: value}
	}
	return cdc.Check{Name: name, Detail: fmt.Sprintf("it is %q, and %s is needed", value, want[0]), Hint: hint}
}

const tablesSQL = `SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = ? AND table_name IN (?, ?)`

func (s *Source) checkTables(ctx context.Context) cdc.Check {
	check := cdc.Check{Name: "tables", OK: true, Detail: s.config.Schema + "." + s.config.Event}
	var count int
	err := s.db.QueryRowContext(ctx, tablesSQL, s.config.Schema, s.config.Event, s.config.Meta).Scan(&count)
	switch {
	case err != nil:
		check.OK, check.Detail = false, err.Error()
	case count < 2:
		check.OK = false
		check.Detail = fmt.Sprintf("%s or %s is missing in database %s, or the account may not see it", s.config.Event, s.config.Meta, s.config.Schema)
		check.Hint = "run the migration, and check the names in the configuration"
	}
	return check
}

// checkFilters looks whether the server leaves the database out of its log.
func (s *Source) checkFilters(ctx context.Context) cdc.Check {
	check := cdc.Check{Name: "binlog filters", OK: true, Detail: "none"}
	end, err := s.logEnd(ctx)
	if err != nil {
		check.OK, check.Detail, check.Hint = false, err.Error(), hintGrants
		return check
	}
	if !end.logs(s.config.Schema) {
		check.OK = false
		check.Detail = fmt.Sprintf("binlog-do-db %q, binlog-ignore-db %q", end.do, end.ignore)
		check.Hint = "let the server log the database " + s.config.Schema
	}
	return check
}

const grantsSQL = `SHOW GRANTS`

func (s *Source) checkRights(ctx context.Context) cdc.Check {
	check := cdc.Check{Name: "privileges", Detail: "the account has no right REPLICATION SLAVE", Hint: hintGrants}
	roles := false
	err := s.table(ctx, grantsSQL, nil, func(row []string) {
		line := strings.ToUpper(row[0])
		switch {
		case !strings.Contains(line, " ON "):
			roles = true
		case strings.Contains(line, " ON *.*") && (strings.Contains(line, "REPLICATION SLAVE") || strings.Contains(line, "ALL PRIVILEGES")):
			check = cdc.Check{Name: check.Name, OK: true, Detail: "the account may read the log"}
		}
	})
	if err != nil {
		check.Detail = err.Error()
	} else if roles && !check.OK {
		check = cdc.Check{Name: check.Name, OK: true, Detail: "the account has roles, which may have the right REPLICATION SLAVE"}
	}
	return check
}

func checkExpiry(found server) cdc.Check {
	expiry := found.expiry()
	switch {
	case expiry == 0:
		return cdc.Check{Name: "binlog expiry", OK: true, Detail: "the server removes no log by itself"}
	case expiry < time.Hour:
		return cdc.Check{
			Name: "binlog expiry", Detail: expiry.String(),
			Hint: "raise binlog_expire_logs_seconds: a relay that is away for longer has to begin anew",
		}
	}
	return cdc.Check{Name: "binlog expiry", OK: true, Detail: expiry.String()}
}
