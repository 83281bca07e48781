package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/waybillhq/waybill/cmd/waybill/internal/lab"
)

type labCmd struct {
	Loans labLoansCmd `cmd:"" help:"Six loans with one fault each: reconcile, rebuild the read model, reconcile again."`
}

type labLoansCmd struct {
	Keep string `placeholder:"DIR" help:"Leave loans.db and check.yaml in this folder; files of an earlier lab are replaced."`
	JSON bool   `name:"json" help:"Print JSON."`
}

// Help has the examples.
func (labLoansCmd) Help() string {
	return `Business table, event log and read model of six loans, in a SQLite file that is made for the purpose. The first report has
four differences and one event in flight; the read model is then rebuilt from the last sent event of each loan, so the
second one has three.

Examples:

	waybill lab loans
	waybill lab loans --json
	waybill lab loans --keep loans && sqlite3 loans/loans.db "DELETE FROM outbox WHERE event_id = 'E-1001-2'" && waybill reconcile run --config loans/check.yaml`
}

func (c *labLoansCmd) Run(a *app) (err error) {
	dir := c.Keep
	if dir == "" {
		if dir, err = os.MkdirTemp("", "waybill-lab-"); err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(dir) }()
	}
	result, err := lab.Loans(a.ctx, dir)
	if err != nil {
		return err
	}
	if c.JSON {
		return a.printJSON(result)
	}
	text := result.Runs[0].Text() + fmt.Sprintf("\nThe read model was rebuilt from the log: %d rows.\n\n", result.Rebuilt) + result.Runs[1].Text()
	if c.Keep != "" {
		text += fmt.Sprintf("\nChange a row of %s, then: waybill reconcile run --config %s\n", filepath.Join(dir, lab.LoansFile), filepath.Join(dir, lab.CheckFile))
	}
	return a.print(text)
}
