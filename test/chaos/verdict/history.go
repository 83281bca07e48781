package verdict

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
)

// State is what the writer knew of a transaction at a moment.
type State string

// The states of a transaction. One that was begun has a line before its end is
// asked for, on disk, and mostly one after it: a writer that was killed has none.
const (
	Committing State = "committing" // COMMIT is sent next
	Leaving    State = "leaving"    // ROLLBACK is sent next
	OK         State = "ok"         // COMMIT was answered
	Failed     State = "failed"     // it cannot have been committed
	Unknown    State = "unknown"    // COMMIT was sent and not answered
	RolledBack State = "rolled back"
)

// Intent is an event that a transaction has appended.
type Intent struct {
	ID      string `json:"id"`
	Key     string `json:"key"`
	Version int64  `json:"version"`
	Type    string `json:"type"`
	Amount  int64  `json:"amount"`
	Sum     string `json:"sum"` // of the data, by [Sum]
}

// Entry is a line of the history.
type Entry struct {
	Tx     string   `json:"tx"`
	At     int64    `json:"at"` // in microseconds since 1970
	State  State    `json:"state"`
	Events []Intent `json:"events,omitempty"` // of Committing and Leaving
	Error  string   `json:"error,omitempty"`
	// Code is what the database called the error, empty where it gave no answer.
	Code string `json:"code,omitempty"`
}

// Sum is a short sum of an event's data.
func Sum(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8])
}

// ReadHistory reads the lines that writers, one after the other, have written to
// a file; each begins with an empty line. Of one that was killed the last line
// may be torn, and is passed over: the transaction does not go on before its
// line is on disk.
func ReadHistory(path string) ([]Entry, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	var all []Entry
	lines := bufio.NewReaderSize(file, 1<<16)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		var e Entry
		if json.Unmarshal(line, &e) == nil {
			all = append(all, e)
		}
	}
}
