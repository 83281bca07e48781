package mybinlog

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/waybillhq/waybill/cdc"
)

const (
	// Of two statements the one that the server knows: MySQL before 8.4 and MariaDB
	// have the second, MySQL since then the first.
	logEndSQL    = `SHOW BINARY LOG STATUS`
	logEndOldSQL = `SHOW MASTER STATUS`

	logFilesSQL = `SHOW BINARY LOGS`
	// The first events of a file say what was logged before it.
	fileStartSQL = `SHOW BINLOG EVENTS IN ? LIMIT 5`
	// What of the position is not there any more, and what never was.
	placeSQL = `SELECT GTID_SUBTRACT(@@GLOBAL.gtid_purged, ?), GTID_SUBTRACT(?, @@GLOBAL.gtid_executed)`
)

// logEnd is what is said of the log that is written: the databases that are in it,
// and those that are not.
type logEnd struct{ do, ignore string }

func (s *Source) logEnd(ctx context.Context) (end logEnd, err error) {
	err = s.either(ctx, logEndSQL, logEndOldSQL, func(row []string) {
		if len(row) >= 4 {
			end = logEnd{do: row[2], ignore: row[3]}
		}
	})
	return end, classify("find the end of the log", err)
}

// logs reports whether changes of a database are written.
func (e logEnd) logs(schema string) bool {
	if e.do != "" {
		return listed(e.do, schema)
	}
	return !listed(e.ignore, schema)
}

func listed(list, name string) bool {
	for one := range strings.SplitSeq(list, ",") {
		if strings.TrimSpace(one) == name {
			return true
		}
	}
	return false
}

type logFile struct {
	name string
	size int64
}

func (s *Source) files(ctx context.Context) (files []logFile, err error) {
	err = s.table(ctx, logFilesSQL, nil, func(row []string) {
		if len(row) >= 2 {
			one := logFile{name: row[0]}
			_, _ = fmt.Sscan(row[1], &one.size)
			files = append(files, one)
		}
	})
	return files, classify("list the files of the log", err)
}

// either runs the first of two statements that the server knows.
func (s *Source) either(ctx context.Context, first, second string, do func(row []string)) error {
	err := s.table(ctx, first, nil, do)
	if codeOf(err) == codeSyntax {
		err = s.table(ctx, second, nil, do)
	}
	return err
}

// table reads statements whose columns differ from version to version.
func (s *Source) table(ctx context.Context, text string, args []any, do func(row []string)) error {
	rows, err := s.db.QueryContext(ctx, text, args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	names, err := rows.Columns()
	if err != nil {
		return err
	}
	values, targets := make([]sql.NullString, len(names)), make([]any, len(names))
	for i := range values {
		targets[i] = &values[i]
	}
	for rows.Next() {
		if err := rows.Scan(targets...); err != nil {
			return err
		}
		row := make([]string, len(values))
		for i, value := range values {
			row[i] = value.String
		}
		do(row)
	}
	return rows.Err()
}

const (
	hintPurged  = "raise binlog_expire_logs_seconds, or keep relays from being away for so long"
	hintUnknown = "the server's log is not the one that was read: it was reset, restored, or is another server's"
)

// verify reports what became of a position, as a loss; nil where a stream can go
// on from it.
func (s *Source) verify(ctx context.Context, found server, from place) error {
	if found.isMaria() {
		return s.verifyMaria(ctx, found, from.(domains))
	}
	// What the log shows is among the executed ones only a moment later.
	const attempts, pause = 5, 50 * time.Millisecond
	for attempt := 1; ; attempt++ {
		var purged, unknown string
		if err := s.db.QueryRowContext(ctx, placeSQL, from.String(), from.String()).Scan(&purged, &unknown); err != nil {
			return classify("look for the position", err)
		}
		switch {
		case unknown == "" && purged == "":
			return nil
		case unknown == "":
			return cdc.Lost(cdc.BinlogPurged, fmt.Errorf("the server has removed transactions that were not read: %s", flat(purged)), hintPurged)
		case attempt == attempts:
			return cdc.Lost(cdc.PositionUnknown, fmt.Errorf("the server does not know transactions that were read: %s", flat(unknown)), hintUnknown)
		}
		if err := sleep(ctx, pause); err != nil {
			return err
		}
	}
}

func flat(text string) string { return strings.ReplaceAll(text, "\n", "") }

// verifyMaria compares the position with the list of ids that the oldest file
// begins with: the last ones before it.
func (s *Source) verifyMaria(ctx context.Context, found server, from domains) error {
	text, err := s.end(ctx, found)
	if err != nil {
		return err
	}
	end, err := parseDomains(text)
	if err != nil {
		return cdc.Refused(cdc.Unreachable, err, "")
	}
	for domain, id := range from {
		if have := end.(domains)[domain]; have.number < id.number {
			return cdc.Lost(cdc.PositionUnknown, fmt.Errorf("the server does not know %s, which was read", domains{domain: id}), hintUnknown)
		}
	}
	files, err := s.files(ctx)
	if err != nil || len(files) == 0 {
		return err
	}
	list := ""
	err = s.table(ctx, fileStartSQL, []any{files[0].name}, func(row []string) {
		if len(row) >= 6 && strings.EqualFold(row[2], "Gtid_list") {
			list = strings.Trim(row[5], "[]")
		}
	})
	if err != nil {
		// The file may have been removed in this moment; the server says so itself.
		return nil //nolint:nilerr // and what else is wrong with the position
	}
	before, err := parseDomains(list)
	if err != nil {
		return nil //nolint:nilerr // no list, no verdict
	}
	// A domain may have several servers in the list: the highest counts.
	for domain, id := range before.(domains) {
		if from[domain].number < id.number {
			return cdc.Lost(cdc.BinlogPurged, fmt.Errorf("the server has removed transactions that were not read, up to %s", domains{domain: id}), hintPurged)
		}
	}
	return nil
}

// Replicas and other readers of the log, by the number that each of them claims.
const (
	replicasSQL    = `SHOW REPLICAS`
	replicasOldSQL = `SHOW SLAVE HOSTS`
)

// rival returns who else reads the log under our number. Whoever may not look
// gets no answer.
func (s *Source) rival(ctx context.Context, serverID uint32) string {
	rival := ""
	_ = s.either(ctx, replicasSQL, replicasOldSQL, func(row []string) {
		if len(row) >= 2 && row[0] == fmt.Sprint(serverID) && !strings.HasPrefix(row[1], s.readerPrefix()) {
			rival = "a replica on host " + row[1]
			if row[1] == "" {
				rival = "a replica"
			}
		}
	})
	return rival
}

func conflict(serverID uint32, rival string, err error) error {
	text := fmt.Errorf("%s reads the log with the server id %d", rival, serverID)
	if err != nil {
		text = fmt.Errorf("%w: %w", text, err)
	}
	return cdc.Refused(cdc.ServerIDConflict, text, "give cdc a server_id that no replica and no other reader of this server has")
}

// ending says why a stream has ended. A log that cannot be read on is asked what
// became of the position, since the texts of this error differ.
func (s *Source) ending(ctx context.Context, serverID uint32, at place, err error) error {
	switch codeOf(err) {
	case codeSameServerID:
		return conflict(serverID, "another reader", err)
	case codeLogUnreadable:
	default:
		return classify("read the log", err)
	}
	if rival := s.rival(ctx, serverID); rival != "" {
		return conflict(serverID, rival, err)
	}
	if strings.Contains(err.Error(), "same server_uuid/server_id") {
		return conflict(serverID, "another reader", err)
	}
	now, lookErr := s.look(ctx)
	if lookErr != nil {
		return lookErr
	}
	var lost *cdc.Error
	if verdict := s.verify(ctx, now, at); errors.As(verdict, &lost) && lost.State.Lost() {
		return cdc.Lost(lost.State, fmt.Errorf("%w: %w", lost.Err, err), lost.Hint)
	}
	if strings.Contains(err.Error(), "purged") {
		return cdc.Lost(cdc.BinlogPurged, err, hintPurged)
	}
	return cdc.Lost(cdc.PositionUnknown, fmt.Errorf("the log cannot be read from %s on: %w", at, err), hintUnknown)
}
