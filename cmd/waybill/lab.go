package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/waybillhq/waybill/cmd/waybill/internal/lab"
)

type labCmd struct {
	Loans labLoansCmd `cmd:"" help:"Six loans with one fault each: reconcile, rebuild the read model, reconcile again."`
	Pairs labPairsCmd `cmd:"" help:"The same loans compared with any two of the three tables: what each pair cannot see."`
}

type labLoansCmd struct {
	Keep  string   `placeholder:"DIR" help:"Leave loans.db and check.yaml in this folder; files of an earlier lab are replaced."`
	Store string   `placeholder:"URL" env:"WAYBILL_LAB_STORE" help:"Build it on this server, postgres://, mysql:// or mariadb://, in a database made for the purpose and dropped at the end unless --keep is given."`
	Arms  []string `placeholder:"ARM,ARM" help:"Compare these two only: write, log, read."`
	JSON  bool     `name:"json" help:"Print JSON."`
}

// Help has the examples.
func (labLoansCmd) Help() string {
	return `Business table, event log and read model of six loans, in a SQLite file that is made for the purpose. The first report has
four differences and one event in flight; the read model is then rebuilt from the last sent event of each loan, so the
second one has three.

With --store and --keep the check finds the database by the file library.dsn, which may hold a password and is made for its
owner alone. Other users of the machine see a password in a flag, but not in the variable WAYBILL_LAB_STORE.

Examples:

	waybill lab loans
	waybill lab loans --json
	waybill lab loans --store postgres://app:secret@localhost/postgres
	waybill lab loans --arms write,log
	waybill lab loans --keep loans && sqlite3 loans/loans.db "DELETE FROM outbox WHERE event_id = 'E-1001-2'" && waybill reconcile run --config loans/check.yaml`
}

func (c *labLoansCmd) Run(a *app) (err error) {
	for _, arm := range c.Arms {
		if !slices.Contains(lab.Arms, arm) {
			return usageError{fmt.Errorf("--arms: %q is none of %s", arm, strings.Join(lab.Arms, ", "))}
		}
	}
	options, cleanUp, err := labOptions(a, c.Keep, c.Store)
	if err != nil {
		return err
	}
	defer cleanUp()
	options.Arms = c.Arms
	result, database, err := lab.Loans(a.ctx, options)
	if err != nil {
		return err
	}
	if c.JSON {
		return a.printJSON(result)
	}
	text := result.Runs[0].Text()
	if len(result.Runs) > 1 {
		text += fmt.Sprintf("\nThe read model was rebuilt from the log: %d rows.\n\n", result.Rebuilt) + result.Runs[1].Text()
	}
	if c.Keep != "" {
		where := filepath.Join(c.Keep, lab.LoansFile)
		if database != "" {
			where = "the database " + database
		}
		text += fmt.Sprintf("\nChange a row of %s, then: waybill reconcile run --config %s\n", where, filepath.Join(c.Keep, lab.CheckFile))
	}
	return a.print(text)
}

// labOptions finds a folder for the lab's files, for a while if none is named.
func labOptions(a *app, keep, store string) (options *lab.Options, cleanUp func(), err error) {
	options, cleanUp = &lab.Options{Dir: keep, Keep: keep != "", Store: store}, func() {}
	if store != "" {
		a.hide(store)
		if _, err := lab.CheckStore(store); err != nil {
			return nil, nil, usageError{err}
		}
	}
	if keep == "" {
		if options.Dir, err = os.MkdirTemp("", "waybill-lab-"); err != nil {
			return nil, nil, err
		}
		cleanUp = func() { _ = os.RemoveAll(options.Dir) }
	}
	return options, cleanUp, nil
}

type labPairsCmd struct {
	Store string `placeholder:"URL" env:"WAYBILL_LAB_STORE" help:"Build it on this server, postgres://, mysql:// or mariadb://, in a database made for the purpose."`
	JSON  bool   `name:"json" help:"Print JSON."`
}

// Help has the examples.
func (labPairsCmd) Help() string {
	return `Why three? Row and log do not show what became of the read model; log and read model do not show that an event was never
written; row and read model show that something is wrong, and blame the consumer for all of it.

Examples:

	waybill lab pairs
	waybill lab pairs --json | jq '.variants[] | {arms, missed}'`
}

func (c *labPairsCmd) Run(a *app) error {
	options, cleanUp, err := labOptions(a, "", c.Store)
	if err != nil {
		return err
	}
	defer cleanUp()
	found, err := lab.ComparePairs(a.ctx, options)
	if err != nil {
		return err
	}
	if c.JSON {
		return a.printJSON(found)
	}
	return a.print(pairsText(found))
}

// pairsText is a table of what each variant says of each loan.
func pairsText(found *lab.Pairs) string {
	style := table.StyleLight
	style.Format.Header, style.Options.DrawBorder = 0, false
	t := table.NewWriter()
	t.SetStyle(style)
	head := table.Row{"loan", "what was done"}
	for _, v := range found.Variants {
		head = append(head, strings.Join(v.Arms, " + "))
	}
	t.AppendHeader(head)
	for _, loan := range found.Loans {
		row := table.Row{loan.Key, loan.Fault}
		for i, verdict := range loan.Verdicts {
			if verdict == "" {
				verdict = "-"
			}
			if !loan.Correct[i] {
				verdict += " (!)"
			}
			row = append(row, verdict)
		}
		t.AppendRow(row)
	}
	var b strings.Builder
	b.WriteString(t.Render() + "\n\n(!) is not what the three together say: a fault not seen, or the wrong side blamed.\n")
	for _, v := range found.Variants[1:] {
		fmt.Fprintf(&b, "%s is wrong about %d of %d.\n", strings.Join(v.Arms, " + "), len(v.Missed), len(found.Loans))
	}
	return b.String()
}
