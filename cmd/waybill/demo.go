package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/waybillhq/waybill/cmd/waybill/internal/demo"
	"github.com/waybillhq/waybill/cmd/waybill/internal/logging"
)

type demoCmd struct {
	Events int    `default:"1000" help:"How many events the order service writes."`
	Seed   uint64 `default:"1" help:"Of what is random in the orders."`
	Keep   string `placeholder:"DIR" help:"Keep the files in this folder."`
	JSON   bool   `name:"json" help:"Print the result as JSON; the progress goes to standard error."`
}

// Help has the examples.
func (demoCmd) Help() string {
	return `Examples:

	waybill demo
	waybill demo --events 5000 --keep demo-files
	waybill demo --json`
}

func (c *demoCmd) Run(a *app) error {
	if c.Events < demo.MinEvents {
		return usageError{fmt.Errorf("--events=%d: the least is %d", c.Events, demo.MinEvents)}
	}
	binary, err := os.Executable()
	if err != nil {
		return err
	}
	result, err := demo.Run(a.ctx, demo.Options{
		Events: c.Events, Seed: c.Seed, Keep: c.Keep, Binary: binary,
		Progress: a.stderr, Live: logging.IsTerminal(a.stderr),
	})
	if err != nil {
		return err
	}
	if c.JSON {
		err = a.printJSON(result)
	} else {
		_, err = fmt.Fprint(a.stdout, "\n", result.Summary(callable(binary)))
	}
	if err == nil && len(result.Violations) > 0 {
		for _, v := range result.Violations {
			fmt.Fprintln(a.stderr, "waybill: demo: broken promise:", v)
		}
		return errFindings
	}
	return err
}

// callable is how the reader can call this binary again: by name, by path, or
// by "go run", whose binary is gone afterwards.
func callable(binary string) string {
	if found, err := exec.LookPath("waybill"); err == nil && sameFile(found, binary) {
		return "waybill"
	}
	if strings.Contains(binary, "go-build") {
		return "go run ./cmd/waybill"
	}
	return binary
}

func sameFile(a, b string) bool {
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}
