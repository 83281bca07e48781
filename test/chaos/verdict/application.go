package verdict

import "strings"

// excused are the answers of a database that is being stopped, killed or
// replaced. All else is an answer to what was asked, and no chaos excuses it.
var excused = []string{
	"57P01", "57P02", "57P03", "08", // PostgreSQL: shut down, crashed, starting, connection
	"1053", "1317", "1927", // MySQL: shutting down, interrupted, killed
}

// application checks that nothing but the chaos has failed a transaction: no
// deadlock, no wait for a lock of others, no refusal.
func (c *check) application() {
	for _, e := range c.History {
		if e.Code == "" {
			continue
		}
		isExcused := false
		for _, prefix := range excused {
			isExcused = isExcused || strings.HasPrefix(e.Code, prefix)
		}
		if !isExcused {
			c.broken("P13", "transaction %s of the application failed with %s: %s", e.Tx, e.Code, e.Error)
		}
	}
}
