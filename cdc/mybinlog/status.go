package mybinlog

import (
	"context"
	"fmt"
	"time"

	"github.com/waybillhq/waybill/cdc"
)

// By the server's clock.
const clockSQL = `SELECT UNIX_TIMESTAMP(NOW(6))`

// Status looks at the log. How far a reader is the server does not know, so the
// lag is that of the stream that was opened here, if one was.
func (s *Source) Status(ctx context.Context) (cdc.Status, error) {
	status := cdc.Status{LagBytes: -1, RetainedBytes: 0, LimitBytes: -1, Headroom: -1}
	holder, err := s.holder(ctx)
	if err != nil {
		return status, err
	}
	if holder != "" {
		status.State, status.Holder = cdc.Streaming, holder
	}
	found, err := s.look(ctx)
	if err != nil {
		return status, err
	}
	end, err := s.end(ctx, found)
	if err != nil {
		return status, err
	}
	status.End = cdc.Position(end)
	files, err := s.files(ctx)
	if err != nil {
		return status, err
	}
	expiry := found.expiry()
	if expiry > 0 {
		status.Headroom = expiry
	}
	status.Detail = detail(files, expiry)
	s.mu.Lock()
	open := s.stream
	s.mu.Unlock()
	if open == nil {
		return status, nil
	}
	seen, position, acked := open.look()
	status.Position = position
	if acked != "" {
		status.Position = acked
	}
	status.LagBytes = seen.lag(files)
	if status.LagBytes > 0 && expiry > 0 && !seen.committed.IsZero() {
		var now float64
		if err := s.db.QueryRowContext(ctx, clockSQL).Scan(&now); err != nil {
			return status, classify("read the server's clock", err)
		}
		away := time.Duration((now - float64(seen.committed.UnixNano())/1e9) * float64(time.Second))
		status.Headroom = max(0, expiry-max(0, away))
	}
	return status, nil
}

// lag is what was written after the place that was read; -1 where the place is in
// none of the files.
func (p progress) lag(files []logFile) int64 {
	lag, found := int64(0), false
	for _, file := range files {
		switch {
		case found:
			lag += file.size
		case file.name == p.file:
			found = true
			lag = max(0, file.size-int64(p.position))
		}
	}
	if !found {
		return -1
	}
	return lag
}

func detail(files []logFile, expiry time.Duration) string {
	total := int64(0)
	for _, file := range files {
		total += file.size
	}
	text := fmt.Sprintf("the server has %d files of binlog, %d MB", len(files), total>>20)
	if expiry > 0 {
		return text + ", each kept for " + expiry.String()
	}
	return text + ", and removes none by itself"
}
