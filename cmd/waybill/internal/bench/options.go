package bench

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"

	"github.com/waybillhq/waybill"
)

// Options are what all nouns take.
type Options struct {
	Store   string // URL of a server; empty for a SQLite file
	Broker  string // URL of a server; empty for a NATS server in this process; "none" for none
	Runs    int
	Events  int // for each arm of each run
	Keys    int
	Payload int // bytes
	// Binary is what RunArm is reached through, by the command that HiddenArm
	// names. Empty: arms run in this process, whose memory they are then charged for.
	Binary string
	// Progress takes a line for each step.
	Progress io.Writer
}

// The kinds of database and of broker.
const (
	kindSQLite   = "sqlite"
	kindPostgres = "postgres"
	kindMySQL    = "mysql"
	kindMariaDB  = "mariadb"

	kindKafka = "kafka"
	kindNATS  = "nats"
	kindNone  = "none"
)

var storeSchemes = map[string]string{
	"postgres": kindPostgres, "postgresql": kindPostgres, "mysql": kindMySQL, "mariadb": kindMariaDB,
}

// Check says what is wrong with the options.
func (o *Options) Check() error {
	switch {
	case o.Runs < 1:
		return optionError("--runs", errors.New("less than 1"), "")
	case o.Events < 1:
		return optionError("--events", errors.New("less than 1"), "")
	case o.Keys < 1:
		return optionError("--keys", errors.New("less than 1"), "")
	case o.Payload < leastPayload || o.Payload > waybill.MaxDataBytes:
		return optionError("--payload", fmt.Errorf("%d bytes", o.Payload), fmt.Sprintf("give %d to %d", leastPayload, waybill.MaxDataBytes))
	}
	if _, _, err := storeOf(o.Store); err != nil {
		return err
	}
	_, err := brokerOf(o.Broker)
	return err
}

// storeOf returns the kind of a server's URL, without showing it in errors.
func storeOf(text string) (kind string, u *url.URL, err error) {
	if text == "" {
		return kindSQLite, nil, nil
	}
	const hint = "write postgres://, mysql:// or mariadb://, then USER:PASSWORD@HOST:PORT/DATABASE"
	if u, err = url.Parse(text); err != nil {
		return "", nil, optionError("--store", errors.New("it is not a URL"), hint)
	}
	kind, ok := storeSchemes[u.Scheme]
	if !ok || u.Host == "" {
		return "", nil, optionError("--store", errors.New("no server of a known kind"), hint)
	}
	return kind, u, nil
}

func brokerOf(text string) (kind string, err error) {
	if text == "" {
		return kindNATS, nil
	}
	if text == kindNone {
		return kindNone, nil
	}
	if u, err := url.Parse(text); err == nil && u.Host != "" {
		switch u.Scheme {
		case "kafka":
			return kindKafka, nil
		case "nats", "tls":
			return kindNATS, nil
		}
	}
	return "", optionError("--broker", errors.New("no broker of a known kind"), "write kafka://HOST:PORT, nats://HOST:PORT, or none")
}

func optionError(key string, err error, hint string) error {
	return &waybill.Error{Op: "bench", Key: key, Err: err, Hint: hint}
}

func (o *Options) say(format string, args ...any) {
	if o.Progress != nil {
		_, _ = fmt.Fprintf(o.Progress, format+"\n", args...)
	}
}

// newName is used by nobody else.
func newName() string { return "waybill_bench_" + strings.ToLower(rand.Text()[:10]) }

func orNone(text string) string { return cmp.Or(text, "unknown") }
