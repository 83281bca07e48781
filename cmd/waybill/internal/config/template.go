package config

import (
	_ "embed"
	"errors"
	"io/fs"
	"os"

	"github.com/waybillhq/waybill"
)

// Template is the commented configuration that [WriteTemplate] writes.
//
//go:embed template.yaml
var Template string

// WriteTemplate writes the template to a file that must not exist yet.
func WriteTemplate(file string) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return &waybill.Error{Op: "write configuration", Key: file, Err: fs.ErrExist, Hint: "remove it, or name another with --config"}
	}
	if err != nil {
		return &waybill.Error{Op: "write configuration", Err: err}
	}
	_, err = f.WriteString(Template)
	return errors.Join(err, f.Close())
}
