package checks

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/cmd/waybill/internal/config"
	"github.com/waybillhq/waybill/reconcile"
)

// Results says where the results of runs are kept.
type Results struct {
	Database string        `yaml:"database"` // one of Databases
	Prefix   string        `yaml:"prefix"`   // of the tables' names
	Keep     time.Duration `yaml:"keep"`
}

// Alerts says who is told of what the checks' alerts say.
type Alerts struct {
	NoLog   bool     `yaml:"no_log"` // do not write them to the log of the program
	Webhook *Webhook `yaml:"webhook"`
}

// Webhook is an address that alerts are posted to. One of URL, URLFile and
// URLEnv is given; an address that is a secret belongs into one of the latter.
type Webhook struct {
	URL               string        `yaml:"url"`
	URLFile           string        `yaml:"url_file"`
	URLEnv            string        `yaml:"url_env"`
	AuthorizationFile string        `yaml:"authorization_file"` // holds the header of that name
	AuthorizationEnv  string        `yaml:"authorization_env"`
	Timeout           time.Duration `yaml:"timeout"`

	authorization string
}

func (f *File) resolveResults(base string) error {
	if f.Results != nil && f.Databases[f.Results.Database] == nil {
		return fmt.Errorf("results: there is no database %q", f.Results.Database)
	}
	w := f.Alerts.Webhook
	if w == nil {
		return nil
	}
	var err error
	if w.URL, err = secretOf(base, "url", w.URL, w.URLFile, w.URLEnv); err != nil {
		return fmt.Errorf("alerts: webhook: %w", err)
	}
	if w.URL == "" {
		return errors.New("alerts: webhook: give one of url, url_file and url_env")
	}
	if w.authorization, err = secretOf(base, "authorization", "", w.AuthorizationFile, w.AuthorizationEnv); err != nil {
		return fmt.Errorf("alerts: webhook: %w", err)
	}
	return nil
}

// secretOf returns a text that is given as it stands, by a file or by a
// variable; empty where it is not.
func secretOf(base, name, plain, file, variable string) (string, error) {
	given := 0
	for _, source := range []string{plain, file, variable} {
		if source != "" {
			given++
		}
	}
	switch {
	case given > 1:
		return "", fmt.Errorf("give one of %s, %s_file and %[1]s_env", name, name)
	case file != "":
		text, err := os.ReadFile(relative(base, file))
		return strings.TrimSpace(string(text)), err
	case variable != "":
		text := os.Getenv(variable)
		if text == "" {
			return "", fmt.Errorf("the variable %s is not set", variable)
		}
		return text, nil
	}
	return plain, nil
}

// ErrNoResults says that the file names no place for results.
var ErrNoResults = errors.New("the file of checks does not say where results are kept")

// Ledger opens the results. Only where create is asked for, a SQLite file that is
// not there is made. The secrets, which an error may tell, come with one too.
func (f *File) Ledger(ctx context.Context, create bool) (ledger *reconcile.Ledger, secrets []string, stop func(), err error) {
	if f.Results == nil {
		return nil, nil, nil, &waybill.Error{Op: "open results", Err: ErrNoResults, Hint: "name one of its databases there: results: {database: NAME}"}
	}
	database := f.Databases[f.Results.Database]
	if create && database.Kind == string(reconcile.SQLite) {
		if err := touch(database.DSN); err != nil {
			return nil, nil, nil, &waybill.Error{Op: "open results", Key: f.Results.Database, Err: err}
		}
	}
	secrets = config.Hidden(database.DSN)
	db, err := database.open(true)
	if err != nil {
		hint := ""
		if errors.Is(err, fs.ErrNotExist) {
			hint = "waybill reconcile migrate makes it"
		}
		return nil, secrets, nil, &waybill.Error{Op: "open results", Key: f.Results.Database, Err: err, Hint: hint}
	}
	stop = func() { _ = db.Close() }
	if err = db.PingContext(ctx); err == nil {
		ledger, err = reconcile.NewLedger(reconcile.Database{DB: db, Dialect: reconcile.Dialect(database.Kind)}, &reconcile.LedgerConfig{Prefix: f.Results.Prefix, Keep: f.Results.Keep})
	}
	if err != nil {
		stop()
		var known *waybill.Error
		if !errors.As(err, &known) {
			err = &waybill.Error{Op: "open results", Key: f.Results.Database, Err: err}
		}
		return nil, secrets, nil, err
	}
	return ledger, secrets, stop, nil
}

func touch(dsn string) error {
	path, _, _ := strings.Cut(strings.TrimPrefix(dsn, "file:"), "?")
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return file.Close()
}

// Secrets are the texts of the file that no output may show.
func (f *File) Secrets() []string {
	var secrets []string
	for _, database := range f.Databases {
		secrets = append(secrets, config.Hidden(database.DSN)...)
	}
	if w := f.Alerts.Webhook; w != nil {
		secrets = append(secrets, w.authorization)
		if w.URLFile != "" || w.URLEnv != "" {
			secrets = append(secrets, w.URL)
		}
	}
	return slices.DeleteFunc(secrets, func(secret string) bool { return secret == "" })
}

// Notifier returns the webhook, or nil where there is none.
func (w *Webhook) Notifier() (reconcile.Notifier, error) {
	if w == nil {
		return nil, nil
	}
	settings := &reconcile.WebhookConfig{Timeout: w.Timeout, Header: make(http.Header)}
	if w.authorization != "" {
		settings.Header.Set("Authorization", w.authorization)
	}
	hook, err := reconcile.NewWebhook(w.URL, settings)
	if err != nil {
		return nil, err
	}
	return hook, nil
}
