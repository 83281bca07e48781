package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/waybillhq/waybill"
)

// DefaultFile is read where no other is named, if it exists.
const DefaultFile = "waybill.yaml"

// Source says where a configuration comes from.
type Source struct {
	File    string   // empty: DefaultFile, if it exists
	Environ []string // as os.Environ returns it
	Set     []string // "path=value", from flags
}

// Loaded is a configuration with what was noticed on the way.
type Loaded struct {
	Config
	File     string   // the file that was read, empty for none
	Warnings []string // for the log
	Secrets  []string // values that no output may show
}

// Load reads the file, overlays the variables and then the flags, and reads
// the files that hold secrets.
func Load(source Source) (*Loaded, error) {
	l := &Loaded{}
	if err := l.readFile(source.File); err != nil {
		return nil, err
	}
	if err := l.overlayEnviron(source.Environ); err != nil {
		return nil, err
	}
	for _, assignment := range source.Set {
		if err := l.set(assignment); err != nil {
			return nil, err
		}
	}
	if err := l.readSecretFiles(); err != nil {
		return nil, err
	}
	l.setDefaults()
	l.collectSecrets()
	return l, nil
}

func (l *Loaded) readFile(name string) error {
	wanted := name != ""
	if !wanted {
		name = DefaultFile
	}
	text, err := os.ReadFile(name)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !wanted:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return &waybill.Error{Op: "read configuration", Key: name, Err: fs.ErrNotExist, Hint: "run: waybill init"}
	case err != nil:
		return &waybill.Error{Op: "read configuration", Err: err}
	}
	if err := decode(name, text, &l.Config); err != nil {
		return err
	}
	l.File = name
	return l.resolvePaths(filepath.Dir(name))
}

// resolvePaths makes the file's relative paths relative to the file, so that
// a command means the same from wherever it is started.
func (l *Loaded) resolvePaths(dir string) error {
	base, err := filepath.Abs(dir)
	if err != nil {
		return &waybill.Error{Op: "read configuration", Key: dir, Err: err}
	}
	l.Store.DSN = resolveDSN(base, l.Store.Kind, l.Store.DSN)
	l.Store.DSNFile = resolve(base, l.Store.DSNFile)
	l.CDC.DSNFile = resolve(base, l.CDC.DSNFile)
	l.Broker.URLFile = resolve(base, l.Broker.URLFile)
	l.Broker.CredentialsFile = resolve(base, l.Broker.CredentialsFile)
	l.Broker.Dir = resolve(base, l.Broker.Dir)
	l.Reconcile.Checks = resolve(base, l.Reconcile.Checks)
	for name, inbox := range l.Inboxes {
		inbox.DSN = resolveDSN(base, inbox.Kind, inbox.DSN)
		inbox.DSNFile = resolve(base, inbox.DSNFile)
		l.Inboxes[name] = inbox
	}
	return nil
}

func resolve(base, path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(base, path)
}

// resolveDSN knows SQLite's two ways to name a file: a plain path, and a URI
// "file:path?options" whose path may be relative.
func resolveDSN(base, kind, dsn string) string {
	if dsn == "" || kind != "" && kind != "sqlite" {
		return dsn
	}
	path, isURI := strings.CutPrefix(dsn, "file:")
	if strings.HasPrefix(path, ":memory:") {
		return dsn
	}
	if !isURI && strings.Contains(path, "://") {
		return dsn // a server's, with the kind not yet set: opening it says so
	}
	if !isURI {
		return resolve(base, path)
	}
	path, options, found := strings.Cut(path, "?")
	if found {
		options = "?" + options
	}
	return "file:" + resolve(base, path) + options
}

func (l *Loaded) readSecretFiles() error {
	if err := secretFile("store.dsn", l.Store.DSNFile, &l.Store.DSN); err != nil {
		return err
	}
	if err := secretFile("cdc.dsn", l.CDC.DSNFile, &l.CDC.DSN); err != nil {
		return err
	}
	if err := secretFile("broker.url", l.Broker.URLFile, &l.Broker.URL); err != nil {
		return err
	}
	for name, inbox := range l.Inboxes {
		if err := secretFile("inboxes."+name+".dsn", inbox.DSNFile, &inbox.DSN); err != nil {
			return err
		}
		l.Inboxes[name] = inbox
	}
	return nil
}

func secretFile(path, file string, field *string) error {
	if file == "" {
		return nil
	}
	if *field != "" {
		return refuse(path, "given twice: directly and by %s_file", path)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return &waybill.Error{Op: "configure", Key: path + "_file", Err: err}
	}
	if *field = strings.TrimSpace(string(text)); *field == "" {
		return refuse(path+"_file", "%s is empty", file)
	}
	return nil
}

func (l *Loaded) setDefaults() {
	standard := func(field *string, value string) {
		if *field == "" {
			*field = value
		}
	}
	standard(&l.Store.Kind, "sqlite")
	standard(&l.Broker.Kind, "nats")
	standard(&l.Broker.Dir, filepath.Join(filepath.Dir(l.File), "nats"))
	if l.Broker.Port == 0 {
		l.Broker.Port = 4222
	}
	standard(&l.Serve.Listen, "127.0.0.1:9464")
	if l.Serve.MaxTopics == 0 {
		l.Serve.MaxTopics = 100
	}
	standard(&l.Log.Level, "info")
	standard(&l.Log.Format, "auto")
	for name, inbox := range l.Inboxes {
		standard(&inbox.Kind, "sqlite")
		l.Inboxes[name] = inbox
	}
}

func (l *Loaded) collectSecrets() {
	l.Secrets = append(l.Secrets, Hidden(l.Store.DSN)...)
	l.Secrets = append(l.Secrets, Hidden(l.CDC.DSN)...)
	l.Secrets = append(l.Secrets, Hidden(l.Broker.URL)...)
	for _, inbox := range l.Inboxes {
		l.Secrets = append(l.Secrets, Hidden(inbox.DSN)...)
	}
}

func refuse(key, format string, args ...any) error {
	return &waybill.Error{Op: "configure", Key: key, Err: fmt.Errorf(format, args...)}
}
