// Package logging makes the command's logger.
package logging

import (
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/lmittmann/tint"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/cmd/waybill/internal/config"
)

// New returns a logger for people on a terminal and for machines elsewhere,
// unless format says otherwise: "auto", "text" or "json". No line shows one of
// the secrets.
func New(w io.Writer, level, format string, secrets []string) (*slog.Logger, error) {
	var least slog.Level
	if err := least.UnmarshalText([]byte(level)); err != nil {
		return nil, refuse("log.level", level, "debug, info, warn or error")
	}
	terminal := IsTerminal(w)
	redacted := &config.RedactWriter{To: w, Secrets: secrets}
	switch format {
	case "auto":
		if !terminal {
			return json(redacted, least), nil
		}
		return text(redacted, least, terminal), nil
	case "text":
		return text(redacted, least, terminal), nil
	case "json":
		return json(redacted, least), nil
	}
	return nil, refuse("log.format", format, "auto, text or json")
}

func json(w io.Writer, least slog.Level) *slog.Logger {
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: least}))
}

func text(w io.Writer, least slog.Level, color bool) *slog.Logger {
	return slog.New(tint.NewTextHandler(w, &tint.Options{Level: least, TimeFormat: "15:04:05.000", NoColor: !color}))
}

// IsTerminal reports whether w is a character device.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"
}

func refuse(key, value, want string) error {
	return &waybill.Error{Op: "configure", Key: key, Err: fmt.Errorf("%q is not one of %s", value, want)}
}
