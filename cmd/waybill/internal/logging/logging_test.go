package logging

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

func TestFormats(t *testing.T) {
	for _, c := range []struct{ format, want string }{
		{"auto", `"msg":"sent","error":"pw ***** was refused"`}, // a buffer is no terminal
		{"json", `"msg":"sent","error":"pw ***** was refused"`},
		{"text", `WRN sent error="pw ***** was refused"`},
	} {
		var out bytes.Buffer
		logger, err := New(&out, "warn", c.format, []string{"hunter2"})
		if err != nil {
			t.Fatal(err)
		}
		logger.Info("quiet")
		logger.Warn("sent", "error", errors.New("pw hunter2 was refused"))
		if got := out.String(); !strings.Contains(got, c.want) || strings.Count(got, "\n") != 1 {
			t.Errorf("%s: got %q, want %q", c.format, got, c.want)
		}
	}
}

func TestRefusals(t *testing.T) {
	if _, err := New(&bytes.Buffer{}, "loud", "auto", nil); err == nil {
		t.Error("level loud was accepted")
	}
	if _, err := New(&bytes.Buffer{}, "info", "xml", nil); err == nil {
		t.Error("format xml was accepted")
	}
}
