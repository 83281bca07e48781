package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/waybillhq/waybill/cmd/waybill/internal/config"
	"github.com/waybillhq/waybill/cmd/waybill/internal/demo"
	"github.com/waybillhq/waybill/cmd/waybill/internal/logging"
)

type demoCmd struct {
	Events int    `default:"1000" help:"How many events the order service writes."`
	Seed   uint64 `default:"1" help:"Of what is random in the orders."`
	Keep   string `placeholder:"DIR" help:"Keep the files in this folder."`
	Store  string `placeholder:"URL" env:"WAYBILL_DEMO_STORE" help:"Play on this server, postgres://, mysql:// or mariadb://, in a database made for the purpose and dropped at the end unless --keep is given."`
	Broker string `placeholder:"URL" env:"WAYBILL_DEMO_BROKER" help:"Play with this broker, kafka:// or nats://, on a topic of its own."`
	JSON   bool   `name:"json" help:"Print the result as JSON; the progress goes to standard error."`
}

// Help has the examples.
func (demoCmd) Help() string {
	return `With servers of yours the demo makes a database waybill_demo_... (on MySQL and MariaDB a second one for the inventory), and
touches no other; the account must be allowed to create one. The broker is stopped for the demo alone: relay and consumer
reach it through a gate in the demo's process. Its topic waybill-demo-... stays, and keeps its records for an hour.
Other users of the machine see a password in a flag, but not in the variables WAYBILL_DEMO_STORE and WAYBILL_DEMO_BROKER.

Examples:

	waybill demo
	waybill demo --events 5000 --keep demo-files
	waybill demo --json
	waybill demo --store postgres://app:secret@localhost/postgres --broker kafka://localhost:9092
	waybill demo --store mysql://app:secret@localhost/`
}

func (c *demoCmd) Run(a *app) error {
	if c.Events < demo.MinEvents {
		return usageError{fmt.Errorf("--events=%d: the least is %d", c.Events, demo.MinEvents)}
	}
	binary, err := os.Executable()
	if err != nil {
		return err
	}
	live := logging.IsTerminal(a.stderr)
	if c.Store != "" || c.Broker != "" {
		a.hide(c.Store, c.Broker)
	}
	options := demo.Options{
		Events: c.Events, Seed: c.Seed, Keep: c.Keep, Store: c.Store, Broker: c.Broker, Binary: binary,
		Progress: a.stderr, Live: live,
	}
	if err := options.Check(); err != nil {
		return usageError{err}
	}
	result, err := demo.Run(a.ctx, options)
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

// hide keeps the passwords in URLs out of the output. What tells of a success
// repeats URLs alone and has names with every letter, also where a password is
// a common word; errors have none of either.
func (a *app) hide(urls ...string) {
	for _, text := range urls {
		a.secrets = append(a.secrets, config.Hidden(text)...)
	}
	a.stdout = &config.RedactWriter{To: a.stdout}
	a.stderr = &config.RedactWriter{To: a.stderr}
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
