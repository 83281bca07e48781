package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/waybillhq/waybill/cmd/waybill/internal/config"
	"github.com/waybillhq/waybill/reconcile"
)

// show prints the reports in the form asked for, and writes the page.
func (c *reconcileRunCmd) show(a *app, all *reconciled) error {
	if c.HTML != "" {
		if err := writePage(a, c.HTML, all.Runs); err != nil {
			return err
		}
	}
	switch {
	case c.JSON:
		return a.printJSON(all)
	case c.Markdown:
		return a.print(joinReports(all.Runs, (*reconcile.Report).Markdown))
	}
	return a.print(joinReports(all.Runs, (*reconcile.Report).Text))
}

func joinReports(reports []*reconcile.Report, render func(*reconcile.Report) string) string {
	texts := make([]string, len(reports))
	for i, report := range reports {
		texts[i] = render(report)
	}
	return strings.Join(texts, "\n")
}

// writePage replaces the page only by a whole one: whoever reads it meanwhile,
// or after a crash, has the old one.
func writePage(a *app, name string, reports []*reconcile.Report) (err error) {
	var page, hidden bytes.Buffer
	if err := reconcile.WriteHTML(&page, reports); err != nil {
		return err
	}
	redact := &config.RedactWriter{To: &hidden, Secrets: a.secrets}
	if _, err := redact.Write(page.Bytes()); err != nil {
		return err
	}
	file, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+"-*") // readable by its owner alone
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(file.Name())
		}
	}()
	if _, err := file.Write(hidden.Bytes()); err != nil {
		return errors.Join(err, file.Close())
	}
	if err := file.Close(); err != nil {
		return err
	}
	return os.Rename(file.Name(), name)
}
