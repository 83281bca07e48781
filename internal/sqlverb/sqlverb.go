// Package sqlverb finds out what the statements of a text do, by their first
// words. It knows enough of SQL to find these behind comments and behind other
// statements, and no more.
package sqlverb

import "strings"

// Dialect is how a database reads comments and quotes.
type Dialect struct {
	// Nested says that comments may contain comments.
	Nested bool
	// Dollars says that $tag$ quotes, and that a backslash does within E''.
	Dollars bool
	// Hash says that # begins a comment as well, that -- does before a space
	// only, that a backslash quotes within '' and "", and that what stands within
	// /*! */ is executed.
	Hash bool
}

// The dialects.
var (
	Postgres = Dialect{Nested: true, Dollars: true}
	MySQL    = Dialect{Hash: true}
	SQLite   = Dialect{}
)

// Words are the first words of a statement, in upper case; what is not there is
// empty.
type Words [3]string

// Any reports whether one of the text's statements is such. What follows a
// CREATE is taken for its body.
func (d Dialect) Any(text string, is func(Words) bool) bool {
	s := scanner{Dialect: d, text: text, last: strings.LastIndexByte(text, ';')}
	for {
		words, more := s.statement()
		if words[0] != "" && is(words) {
			return true
		}
		if !more || words[0] == "CREATE" {
			return false
		}
	}
}

type scanner struct {
	Dialect
	text string
	at   int
	last int // where the last semicolon is
}

// statement reads up to the next semicolon, and reports whether one was there.
func (s *scanner) statement() (words Words, more bool) {
	n := 0
	for s.at < len(s.text) {
		if n == len(words) && s.at > s.last {
			break // nothing follows
		}
		switch c := s.text[s.at]; {
		case c == ';':
			s.at++
			return words, true
		case isWord(c):
			begin := s.at
			for s.at < len(s.text) && isWord(s.text[s.at]) {
				s.at++
			}
			if n < len(words) {
				words[n] = strings.ToUpper(s.text[begin:s.at])
				n++
			}
		case s.comment():
		case c == '\'' || c == '"' || c == '`':
			s.quoted(c)
			n = len(words)
		case c == '$' && s.Dollars && s.dollars():
			n = len(words)
		case c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == '\v':
			s.at++
		default:
			s.at++
			// Before the first word it may be a parenthesis, within one @@session.a.
			if n > 0 && c != '@' && c != '.' {
				n = len(words)
			}
		}
	}
	return words, false
}

func isWord(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= 0x80
}

// comment passes a comment, if there is one.
func (s *scanner) comment() bool {
	rest := s.text[s.at:]
	switch {
	case strings.HasPrefix(rest, "--") && (!s.Hash || len(rest) == 2 || rest[2] <= ' '), s.Hash && rest[0] == '#':
		end := strings.IndexByte(rest, '\n')
		if end < 0 {
			end = len(rest) - 1
		}
		s.at += end + 1
	case s.Hash && (strings.HasPrefix(rest, "/*!") || strings.HasPrefix(rest, "/*M!")):
		s.at += strings.IndexByte(rest, '!') + 1
		for s.at < len(s.text) && s.text[s.at] >= '0' && s.text[s.at] <= '9' {
			s.at++ // from which version on
		}
	case s.Hash && strings.HasPrefix(rest, "*/"):
		s.at += 2
	case strings.HasPrefix(rest, "/*"):
		s.at += 2
		for depth := 1; depth > 0 && s.at < len(s.text); {
			rest := s.text[s.at:]
			switch {
			case strings.HasPrefix(rest, "*/"):
				depth--
				s.at += 2
			case s.Nested && strings.HasPrefix(rest, "/*"):
				depth++
				s.at += 2
			default:
				s.at++
			}
		}
	default:
		return false
	}
	return true
}

// quoted passes a text in quotes. A quote that is doubled ends one and begins
// the next, which comes to the same.
func (s *scanner) quoted(quote byte) {
	escapes := s.Hash && quote != '`' || s.Dollars && quote == '\'' && s.at > 0 && s.text[s.at-1]|0x20 == 'e' && (s.at == 1 || !isWord(s.text[s.at-2]))
	for s.at++; s.at < len(s.text); s.at++ {
		switch {
		case escapes && s.text[s.at] == '\\':
			s.at++
		case s.text[s.at] == quote:
			s.at++
			return
		}
	}
}

// dollars passes a text between dollar signs, if there is one.
func (s *scanner) dollars() bool {
	if s.at > 0 && isWord(s.text[s.at-1]) {
		return false
	}
	length := strings.IndexByte(s.text[s.at+1:], '$')
	if length < 0 {
		return false
	}
	tag := s.text[s.at : s.at+length+2]
	for i := 1; i < len(tag)-1; i++ {
		if !isWord(tag[i]) || i == 1 && tag[i] >= '0' && tag[i] <= '9' {
			return false // $1 and the like
		}
	}
	s.at += len(tag)
	end := strings.Index(s.text[s.at:], tag)
	if end < 0 {
		s.at = len(s.text)
		return true
	}
	s.at += end + len(tag)
	return true
}
