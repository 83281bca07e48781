package reconcile

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// inlined returns the statement with its parameters written into it, for the
// database's own shell.
func (s *statement) inlined() string {
	text := s.text.String()
	var b strings.Builder
	quote := byte(0) // within a name or a text no placeholder stands
	next := 0
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '\'' || c == '"' || c == '`':
			quote = c
		case c == '?' && s.dialect != Postgres:
			b.WriteString(s.dialect.literal(s.args[next]))
			next++
			continue
		case c == '$' && s.dialect == Postgres:
			end := i + 1
			for end < len(text) && text[end] >= '0' && text[end] <= '9' {
				end++
			}
			if n, err := strconv.Atoi(text[i+1 : end]); err == nil {
				b.WriteString(s.dialect.literal(s.args[n-1]))
				i = end - 1
				continue
			}
		}
		b.WriteByte(c)
	}
	return b.String()
}

// literal writes a value as it stands in a statement.
func (d Dialect) literal(value any) string {
	switch x := value.(type) {
	case nil:
		return "NULL"
	case string:
		if d.family() == MySQL {
			x = strings.ReplaceAll(x, `\`, `\\`)
		}
		return "'" + strings.ReplaceAll(x, "'", "''") + "'"
	case []byte:
		if d == Postgres {
			return `'\x` + hex.EncodeToString(x) + `'::bytea`
		}
		return "X'" + hex.EncodeToString(x) + "'"
	case time.Time:
		return "'" + x.UTC().Format("2006-01-02 15:04:05.999999") + "'"
	}
	return fmt.Sprint(value)
}

// words writes texts as a list.
func (d Dialect) words(texts []string) string {
	list := make([]string, len(texts))
	for i, text := range texts {
		list[i] = d.literal(text)
	}
	return strings.Join(list, ", ")
}
