// Command trading plays a payment from the provider's callback to the books: the
// provider calls three times, and everything happens once. It needs nothing: the
// databases are SQLite files in a folder that it removes, the broker is in the
// process. See package chain for what the services do.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	var patience time.Duration
	flag.DurationVar(&patience, "patience", time.Minute, "how long to wait for the last event")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stdout, patience); err != nil {
		fmt.Fprintln(os.Stderr, "trading:", err)
		os.Exit(1)
	}
}

// run plays the scene and tells it.
func run(ctx context.Context, out io.Writer, patience time.Duration) (err error) {
	folder, err := os.MkdirTemp("", "trading-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	town, err := build(ctx, folder)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, town.close()) }()

	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- town.run(running) }()
	waiting, enough := context.WithTimeout(ctx, patience)
	defer enough()
	err = town.play(waiting, out)
	stop()
	return errors.Join(err, <-ended)
}
