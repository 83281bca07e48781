package reconcile

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
)

// Definition returns a hash of what the check compares and how it judges. What
// says only when it runs, how fast, and who is told of it, is left out: such a
// change makes no earlier result doubtful.
func (c *Check) Definition() string {
	judged := *c
	judged.Name = ""
	judged.Confirm, judged.MaxFindings = nil, 0
	judged.ChunkRows, judged.StatementTimeout, judged.Duty = 0, 0, 0
	judged.Window, judged.Schedule = 0, Schedule{}
	text, err := json.Marshal(judged)
	if err != nil { // a struct of texts and numbers
		panic(err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}

// findingID names the finding of a class about a key.
func findingID(check string, class Class, storedKey string) string {
	sum := sha256.Sum256([]byte(check + "\x00" + string(class) + "\x00" + storedKey))
	return "F-" + hex.EncodeToString(sum[:8])
}
