// Package lab builds small worlds with known faults and reconciles them.
package lab

import (
	"context"
	"database/sql"
	_ "embed" // the world
	"errors"
	"fmt"
	"os"
	"path/filepath"

	_ "modernc.org/sqlite" // registers the driver

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/cmd/waybill/internal/checks"
	"github.com/waybillhq/waybill/reconcile"
)

//go:embed loans.sql
var loansSQL string

//go:embed check.yaml
var loansCheck []byte

// The files that a lab leaves.
const (
	LoansFile = "loans.db"
	CheckFile = "check.yaml"
)

// Result is what a lab has found.
type Result struct {
	Runs    []*reconcile.Report `json:"runs"` // before and after the rebuild
	Rebuilt int                 `json:"rebuilt_rows"`
}

// Loans builds the loans in a folder, reconciles them, rebuilds the read model
// from the log, and reconciles again. Files of an earlier lab are replaced.
func Loans(ctx context.Context, dir string) (*Result, error) {
	fail := func(err error) (*Result, error) { return nil, &waybill.Error{Op: "lab", Key: "loans", Err: err} }
	if err := buildLoans(ctx, dir); err != nil {
		return fail(err)
	}
	file, err := checks.Load(filepath.Join(dir, CheckFile))
	if err != nil {
		return fail(err)
	}
	check := file.Checks["loans"]
	opened, err := file.Open(ctx, check, true)
	if err != nil {
		return fail(err)
	}
	defer opened.Close()
	engine, err := reconcile.New(*check, opened.Databases, nil)
	if err != nil {
		return fail(err)
	}
	before, err := engine.Run(ctx)
	if err != nil {
		return fail(err)
	}
	rebuilt, err := engine.Rebuild(ctx, nil)
	if err != nil {
		return fail(err)
	}
	if len(rebuilt.Refused) > 0 {
		return fail(fmt.Errorf("the rebuild refused %+v", rebuilt.Refused))
	}
	after, err := engine.Run(ctx)
	if err != nil {
		return fail(err)
	}
	return &Result{Runs: []*reconcile.Report{before, after}, Rebuilt: rebuilt.Rows}, nil
}

func buildLoans(ctx context.Context, dir string) (err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	name := filepath.Join(dir, LoansFile)
	for _, suffix := range []string{"", "-journal", "-wal", "-shm"} {
		if err := os.Remove(name + suffix); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	db, err := sql.Open("sqlite", name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if _, err := db.ExecContext(ctx, loansSQL); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, CheckFile), loansCheck, 0o644)
}
