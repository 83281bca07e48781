package config

import (
	"encoding/json"
	"io"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Redacted stands where a secret was.
const Redacted = "*****"

// passwordOption finds a password among options, as in a libpq keyword string
// or in a URL's query.
var passwordOption = regexp.MustCompile(`(?i)\b((?:ssl)?password|passwd|pwd|token|secret)\s*=\s*('(?:[^'\\]|\\.)*'|[^\s&;]+)`)

// userInfo finds a password, or a lone token, before the '@' of a URL.
var userInfo = regexp.MustCompile(`([a-zA-Z][a-zA-Z0-9+.-]*://)([^\s/?#@:]*)(:[^\s/?#]*)?@`)

// driverInfo finds a password in the form of go-sql-driver/mysql:
// user:password@tcp(host:3306)/database.
var driverInfo = regexp.MustCompile(`([^\s:/@"'=]+):([^\s]+)@((?:[a-z]+\([^\s()]*\))?)/`)

// secretsIn returns the passwords and tokens inside a DSN or URL, as they are
// written, as they read once decoded, and as JSON and quoted text show them.
func secretsIn(text string) []string {
	var found []string
	add := func(secret string) {
		if secret == "" {
			return
		}
		forms := []string{secret}
		if plain, err := url.PathUnescape(secret); err == nil {
			forms = append(forms, plain)
		}
		for _, form := range forms {
			quoted := strconv.Quote(form)
			marshalled, _ := json.Marshal(form) // cannot fail: text
			for _, shown := range []string{form, quoted[1 : len(quoted)-1], string(marshalled[1 : len(marshalled)-1])} {
				if !slices.Contains(found, shown) {
					found = append(found, shown)
				}
			}
		}
	}
	for _, m := range userInfo.FindAllStringSubmatch(text, -1) {
		switch {
		case m[3] != "":
			add(strings.TrimPrefix(m[3], ":"))
		case strings.HasPrefix(m[1], "nats") || strings.HasPrefix(m[1], "tls") || strings.HasPrefix(m[1], "ws"):
			add(m[2]) // nats://token@host
		}
	}
	for _, m := range driverInfo.FindAllStringSubmatch(text, -1) {
		add(m[2])
	}
	for _, m := range passwordOption.FindAllStringSubmatch(text, -1) {
		if secret := m[2]; strings.HasPrefix(secret, "'") {
			add(secret[1 : len(secret)-1])
		} else {
			add(secret)
		}
	}
	return found
}

// userOption finds a user among options.
var userOption = regexp.MustCompile(`(?i)\buser\s*=\s*(?:'([^']*)'|([^\s&;]+))`)

// Hidden returns the secrets of a DSN or URL that are hidden wherever they
// stand. A password that is also its user's name, as in postgres:postgres, is
// hidden in its place alone: elsewhere it would take ordinary words along, and
// tell by the hidden user what the password is.
func Hidden(text string) []string {
	var users []string
	for _, m := range userInfo.FindAllStringSubmatch(text, -1) {
		if m[3] != "" {
			users = append(users, m[2])
		}
	}
	for _, m := range driverInfo.FindAllStringSubmatch(text, -1) {
		users = append(users, m[1])
	}
	for _, m := range userOption.FindAllStringSubmatch(text, -1) {
		users = append(users, m[1], m[2])
	}
	return slices.DeleteFunc(secretsIn(text), func(secret string) bool { return slices.Contains(users, secret) })
}

// Redact hides the given secrets, and whatever looks like a password in a URL
// or among options.
func Redact(text string, secrets []string) string {
	// Longer ones first: a secret may contain another.
	ordered := slices.SortedFunc(slices.Values(secrets), func(a, b string) int { return len(b) - len(a) })
	for _, s := range ordered {
		if len(s) >= 4 { // a shorter one would blot out ordinary words; the patterns below still catch it in place
			text = strings.ReplaceAll(text, s, Redacted)
		}
	}
	text = userInfo.ReplaceAllStringFunc(text, func(match string) string {
		m := userInfo.FindStringSubmatch(match)
		if m[3] != "" {
			return m[1] + m[2] + ":" + Redacted + "@"
		}
		return match
	})
	text = driverInfo.ReplaceAllString(text, "$1:"+Redacted+"@$3/")
	return passwordOption.ReplaceAllString(text, "$1="+Redacted)
}

// RedactWriter hides secrets in what is written through it. Each Write should
// be a whole line, as loggers and fmt make it.
type RedactWriter struct {
	To      io.Writer
	Secrets []string
}

// Write implements [io.Writer].
func (w *RedactWriter) Write(p []byte) (int, error) {
	if _, err := io.WriteString(w.To, Redact(string(p), w.Secrets)); err != nil {
		return 0, err
	}
	return len(p), nil
}
