// Command waybill moves events from a transactional outbox to a broker and
// answers what became of them.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/waybillhq/waybill/cmd/waybill/internal/adapter"
	"github.com/waybillhq/waybill/cmd/waybill/internal/config"
)

// Exit codes.
const (
	exitOK       = 0
	exitError    = 1
	exitUsage    = 2 // the command line or the configuration is wrong
	exitFindings = 3 // it worked, and found something that needs a person
)

// errFindings makes the command exit with exitFindings; what was found has
// been printed.
var errFindings = errors.New("findings")

// usageError is a mistake in what was asked.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	ctx, stop := untilSignal()
	defer stop()
	var cli cli
	code := -1
	parser, err := newParser(&cli, stdout, stderr, func(c int) { code = c })
	if err != nil {
		return fail(stderr, nil, err)
	}
	if len(args) > 0 && args[0] == "help" { // as in "waybill help dead list"
		args = append(slices.Clone(args[1:]), "--help")
	}
	kctx, err := parser.Parse(args)
	if code >= 0 { // help was printed
		return code
	}
	if err != nil {
		return fail(stderr, nil, usageError{err})
	}
	app := &app{ctx: ctx, cli: &cli, stdout: stdout, stderr: stderr, screen: newScreen(stdout)}
	err = kctx.Run(app, parser)
	return fail(stderr, app.secrets, err)
}

func newParser(cli *cli, stdout, stderr io.Writer, exit func(int)) (*kong.Kong, error) {
	return kong.New(
		cli,
		kong.Name("waybill"),
		kong.Description("Events from a database to a broker, in order, once in effect. Start with: waybill demo"),
		kong.Writers(stdout, stderr),
		kong.Exit(exit),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100}),
		kong.UsageOnError(),
	)
}

// fail prints an error, redacted, and returns the exit code for it.
func fail(stderr io.Writer, secrets []string, err error) int {
	var usage usageError
	var settings *adapter.ConfigError
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errFindings):
		return exitFindings
	}
	mistaken := errors.As(err, &usage) || errors.As(err, &settings)
	text := config.Redact(err.Error(), secrets)
	if !mistaken {
		// One line for one failure, whatever a library made of it; several
		// mistakes in a file have a line each.
		text = flat(text)
	}
	for line := range strings.Lines(text) {
		fmt.Fprintln(stderr, "waybill:", strings.TrimRight(line, "\n"))
	}
	if mistaken {
		return exitUsage
	}
	return exitError
}

// flat joins the lines of a text, each once.
func flat(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "; ")
}

// untilSignal ends the context at the first SIGINT or SIGTERM. The second one
// ends the process as if nobody had listened.
func untilSignal() (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}
