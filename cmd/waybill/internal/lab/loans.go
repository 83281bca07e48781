// Package lab builds small worlds with known faults and reconciles them.
package lab

import (
	"context"
	_ "embed" // the world
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	_ "github.com/jackc/pgx/v5/stdlib" // registers the driver
	_ "modernc.org/sqlite"             // registers the driver

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/cmd/waybill/internal/checks"
	"github.com/waybillhq/waybill/reconcile"
)

//go:embed loans.sql
var loansSQL string

//go:embed check.yaml
var loansCheck string

// The files that a lab leaves.
const (
	LoansFile = "loans.db"
	CheckFile = "check.yaml"
)

// Arms are the three accounts that a lab compares.
var Arms = []string{"write", "log", "read"}

// Result is what a lab has found.
type Result struct {
	Runs    []*reconcile.Report `json:"runs"` // before and after the rebuild
	Rebuilt int                 `json:"rebuilt_rows"`
}

// Options say where a lab is built and what it compares.
type Options struct {
	Dir   string   // for the files; those of an earlier lab are replaced
	Keep  bool     // leave what was made on the server
	Store string   // URL of a server; empty: a SQLite file in Dir
	Arms  []string // of Arms, at least two; empty: all
}

// Lab is a world that has been built.
type Lab struct {
	site   *site
	opened *checks.Opened
	check  *reconcile.Check
	keep   bool
}

// Loans builds the loans, reconciles them, rebuilds the read model from the
// log, and reconciles again. Without both log and read model there is nothing to
// rebuild, and one run.
func Loans(ctx context.Context, options *Options) (result *Result, database string, err error) {
	l, err := build(ctx, options)
	if err != nil {
		return nil, "", &waybill.Error{Op: "lab", Key: "loans", Err: err}
	}
	defer func() { err = errors.Join(err, l.close(ctx)) }()
	engine, err := l.engine(options.Arms)
	if err != nil {
		return nil, "", err
	}
	result, err = play(ctx, engine)
	if err != nil {
		err = &waybill.Error{Op: "lab", Key: "loans", Err: err}
	}
	return result, l.site.database, err
}

func play(ctx context.Context, engine *reconcile.Engine) (*Result, error) {
	before, err := engine.Run(ctx)
	if err != nil {
		return nil, err
	}
	result := &Result{Runs: []*reconcile.Report{before}}
	if engine.Check().Log == nil || engine.Check().Read == nil {
		return result, nil
	}
	rebuilt, err := engine.Rebuild(ctx, nil)
	if err != nil {
		return nil, err
	}
	if len(rebuilt.Refused) > 0 {
		return nil, fmt.Errorf("the rebuild refused %+v", rebuilt.Refused)
	}
	after, err := engine.Run(ctx)
	if err != nil {
		return nil, err
	}
	result.Runs, result.Rebuilt = append(result.Runs, after), rebuilt.Rows
	return result, nil
}

// build makes the world and opens it.
func build(ctx context.Context, options *Options) (l *Lab, err error) {
	if err := os.MkdirAll(options.Dir, 0o755); err != nil {
		return nil, err
	}
	l = &Lab{keep: options.Keep}
	if l.site, err = newSite(ctx, options.Dir, options.Store); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.site.leave(ctx))
		}
	}()
	if err := execute(ctx, l.site.open, l.site.statements(loansSQL)...); err != nil {
		return nil, err
	}
	name := filepath.Join(options.Dir, CheckFile)
	if err := os.WriteFile(name, []byte(strings.Replace(loansCheck, "{database}", l.site.entry(), 1)), 0o644); err != nil {
		return nil, err
	}
	if l.site.dsn != "" {
		if err := os.WriteFile(filepath.Join(options.Dir, dsnFile), []byte(l.site.dsn+"\n"), 0o600); err != nil {
			return nil, err
		}
	}
	file, err := checks.Load(name)
	if err != nil {
		return nil, err
	}
	l.check = file.Checks["loans"]
	l.opened, err = file.Open(ctx, l.check, true)
	return l, err
}

func (l *Lab) close(ctx context.Context) error {
	l.opened.Close()
	if l.keep {
		return nil
	}
	return l.site.leave(ctx)
}

// engine compares the arms named, or all.
func (l *Lab) engine(arms []string) (*reconcile.Engine, error) {
	check := *l.check
	if len(arms) > 0 {
		if !slices.Contains(arms, "write") {
			check.Write = nil
		}
		if !slices.Contains(arms, "log") {
			check.Log = nil
		}
		if !slices.Contains(arms, "read") {
			check.Read = nil
		}
	}
	return reconcile.New(check, l.opened.Databases, nil)
}
