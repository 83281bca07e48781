// Package checks reads files of reconciliation checks and opens what they name.
package checks

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/reconcile"
)

// DefaultFile is read where no other is named.
const DefaultFile = "check.yaml"

// File is a file of checks.
type File struct {
	Databases map[string]*Database        `yaml:"databases"`
	Checks    map[string]*reconcile.Check `yaml:"checks"`
	Results   *Results                    `yaml:"results"`
	Alerts    Alerts                      `yaml:"alerts"`
}

// Database says how to reach a database. Exactly one of DSN, DSNFile and
// DSNEnv is given; a DSN with a password belongs into one of the latter.
type Database struct {
	Kind    string `yaml:"kind"`     // sqlite, postgres, mysql or mariadb
	DSN     string `yaml:"dsn"`      // of SQLite a path, relative to the file
	DSNFile string `yaml:"dsn_file"` // a file that holds it
	DSNEnv  string `yaml:"dsn_env"`  // a variable that holds it
}

// Load reads a file. Its errors name the line and never repeat the text, which
// may hold a secret.
func Load(name string) (*File, error) {
	if name == "" {
		name = DefaultFile
	}
	fail := func(place string, err error, hint string) (*File, error) {
		return nil, &waybill.Error{Op: "read checks", Key: place, Err: err, Hint: hint}
	}
	text, err := os.ReadFile(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fail(name, fs.ErrNotExist, "name the file by --config; waybill lab loans --keep DIR makes one to learn from")
	case err != nil:
		return fail("", err, "")
	}
	var file File
	if err := yaml.UnmarshalWithOptions(text, &file, yaml.Strict()); err != nil {
		var located yaml.Error
		if !errors.As(err, &located) || located.GetToken() == nil {
			return fail(name, errors.New("not a valid file of checks"), "")
		}
		message := located.GetMessage()
		if value := located.GetToken().Value; value != "" && !strings.HasPrefix(message, "unknown field") {
			message = strings.ReplaceAll(message, value, "...")
		}
		return fail(fmt.Sprintf("%s:%d", name, located.GetToken().Position.Line), errors.New(message), "")
	}
	if len(file.Checks) == 0 {
		return fail(name, errors.New("there is no check in it"), "add one under checks")
	}
	for key, check := range file.Checks {
		if check == nil {
			return fail(name, fmt.Errorf("the check %s is empty", key), "")
		}
		if check.Name == "" {
			check.Name = key
		}
	}
	base := filepath.Dir(name)
	if err := file.resolveResults(base); err != nil {
		return fail(name, err, "")
	}
	for key, database := range file.Databases {
		if database == nil {
			return fail(name, fmt.Errorf("the database %s is empty", key), "")
		}
		if err := database.resolve(base); err != nil {
			return fail(name, fmt.Errorf("database %s: %w", key, err), "")
		}
	}
	return &file, nil
}

// Names returns the checks to run: those asked for, or all.
func (f *File) Names(asked []string) ([]string, error) {
	if len(asked) == 0 {
		return slices.Sorted(maps.Keys(f.Checks)), nil
	}
	for _, name := range asked {
		if f.Checks[name] == nil {
			return nil, &waybill.Error{
				Op: "check", Key: name, Err: errors.New("there is no such check"),
				Hint: "there are: " + strings.Join(slices.Sorted(maps.Keys(f.Checks)), ", "),
			}
		}
	}
	return asked, nil
}

// resolve finds the DSN, and makes paths relative to the file that names them.
func (d *Database) resolve(base string) error {
	given := 0
	for _, source := range []string{d.DSN, d.DSNFile, d.DSNEnv} {
		if source != "" {
			given++
		}
	}
	if given != 1 {
		return errors.New("give one of dsn, dsn_file and dsn_env")
	}
	if d.DSNFile != "" {
		text, err := os.ReadFile(relative(base, d.DSNFile))
		if err != nil {
			return err
		}
		d.DSN = strings.TrimSpace(string(text))
	}
	if d.DSNEnv != "" {
		if d.DSN = os.Getenv(d.DSNEnv); d.DSN == "" {
			return fmt.Errorf("the variable %s is not set", d.DSNEnv)
		}
	}
	if d.Kind == string(reconcile.SQLite) {
		path, isURI := strings.CutPrefix(d.DSN, "file:")
		d.DSN = relative(base, path)
		if isURI {
			d.DSN = "file:" + d.DSN
		}
	}
	return nil
}

func relative(base, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(base, path)
}
