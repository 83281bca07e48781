package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"time"

	"github.com/waybillhq/waybill"
)

// Options say how to play.
type Options struct {
	Events int    // how many events the order service writes, the poison one included
	Seed   uint64 // of what is random in the orders
	Keep   string // a folder for the files; empty: a temporary one that is removed
	Store  string // the URL of a database server; empty: SQLite
	Broker string // the URL of a broker; empty: an embedded one
	Binary string // the waybill binary, started as the relay

	Progress io.Writer // told what happens; not nil
	Live     bool      // Progress is a terminal: redraw one line
}

// MinEvents is the smallest number of events for which every scene takes place.
const MinEvents = 20

// The names of the files in the folder.
const (
	ordersFile    = "orders.db"
	inventoryFile = "inventory.db"
	ordersDSN     = "orders.dsn"
	inventoryDSN  = "inventory.dsn"
	configFile    = "waybill.yaml"
	verifyFile    = "verify.sql"
	relayLog      = "relay.log"
)

// drainLimit bounds the time for the backlog to drain once the last fault is over.
const drainLimit = 3 * time.Minute

// Run plays the demo. It returns a result whenever the databases could be
// examined, also when what they say is bad; see [Result.Violations].
func Run(ctx context.Context, options Options) (*Result, error) {
	if options.Events < MinEvents {
		return nil, &waybill.Error{Op: "demo", Err: fmt.Errorf("%d events are too few, the least is %d", options.Events, MinEvents)}
	}
	dir, remove, err := prepareDir(options.Keep)
	if err != nil {
		return nil, err
	}
	defer remove()
	p := &play{options: options, dir: dir, began: now(), name: newName(), view: newView(options.Progress, options.Live)}
	defer p.view.close()
	result, err := p.proof(ctx)
	if err != nil {
		if ctx.Err() != nil {
			err = errors.Join(errors.New("interrupted"), p.left)
		}
		return nil, fmt.Errorf("demo: %w", err)
	}
	result.Seed, result.Seconds = options.Seed, now().Sub(p.began).Round(100*time.Millisecond).Seconds()
	if options.Keep != "" {
		result.Dir, result.Database = dir, p.at.database
	}
	if options.Broker != "" {
		result.Topic = p.broker.topic()
	}
	result.scene = scene{
		where: p.at.describe(), inspect: p.at.inspector(verifyFile), topic: p.broker.topic(),
		server: options.Store != "", broker: options.Broker != "", noOutage: p.broker.reason(),
	}
	return result, nil
}

// Check says what is wrong with the options, before anything is made.
func (o *Options) Check() error {
	if o.Store != "" {
		if _, _, err := checkStore(o.Store); err != nil {
			return err
		}
	}
	if o.Broker != "" {
		if _, _, err := checkBroker(o.Broker); err != nil {
			return err
		}
	}
	return nil
}

// proof plays and examines, and leaves no database behind that nobody asked to keep.
func (p *play) proof(ctx context.Context) (result *Result, err error) {
	if p.options.Store == "" {
		p.at = fileSite(p.dir)
	} else if p.at, err = serverSite(ctx, p.options.Store, p.name); err != nil {
		return nil, err
	}
	if p.options.Keep == "" {
		defer func() {
			p.left = p.at.leave(ctx)
			err = errors.Join(err, p.left)
		}()
	}
	if err := p.perform(ctx); err != nil {
		return nil, err
	}
	return p.at.verify(ctx)
}

// prepareDir returns the folder and what to do with it at the end.
func prepareDir(keep string) (dir string, remove func(), err error) {
	if keep == "" {
		dir, err = os.MkdirTemp("", "waybill-demo-")
		if err != nil {
			return "", nil, &waybill.Error{Op: "demo", Err: err}
		}
		return dir, func() { _ = os.RemoveAll(dir) }, nil
	}
	if dir, err = filepath.Abs(keep); err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err != nil {
		return "", nil, &waybill.Error{Op: "demo", Key: keep, Err: err}
	}
	for _, name := range []string{ordersFile, inventoryFile, configFile} {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			return "", nil, &waybill.Error{Op: "demo", Key: keep, Err: fmt.Errorf("%s is there already", name), Hint: "name an empty folder with --keep"}
		}
	}
	return dir, func() {}, nil
}

// play is one performance.
type play struct {
	options Options
	dir     string
	began   time.Time
	name    string // of what is made on servers
	left    error  // of the cleaning up
	view    *view
	at      *site

	orders    *orderService
	inventory *inventory
	broker    brokerHouse
	relays    *relays
}

func (p *play) path(name string) string { return filepath.Join(p.dir, name) }

// perform sets the scene, plays it, and leaves the databases closed.
func (p *play) perform(ctx context.Context) (err error) {
	closeAll, err := p.setScene(ctx)
	defer func() { err = errors.Join(err, closeAll()) }()
	if err != nil {
		return err
	}
	stopDisplay := p.display(ctx)
	defer stopDisplay()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	consumer := p.inventory.start(ctx, cancel)
	defer func() { _ = consumer.stop() }()
	writer := p.orders.start(ctx, cancel, script(p.options.Events, p.options.Seed), writingTime(p.options.Events))
	defer func() { _ = writer.stop() }()
	if err := p.mischief(ctx); err != nil {
		return first(context.Cause(ctx), err)
	}
	if err := writer.wait(ctx); err != nil {
		return err
	}
	p.view.say("all %d events are written; waiting for the last to arrive", p.options.Events)
	if err := p.drain(ctx); err != nil {
		return first(context.Cause(ctx), err)
	}
	if err := p.relays.stop(); err != nil {
		return err
	}
	return consumer.stop()
}

// setScene opens everything. The returned function closes what was opened,
// also after an error.
func (p *play) setScene(ctx context.Context) (closeAll func() error, err error) {
	var opened []func() error
	closeAll = func() (err error) {
		for i := len(opened) - 1; i >= 0; i-- {
			err = errors.Join(err, opened[i]())
		}
		return err
	}
	if p.broker, err = newBrokerHouse(ctx, p.options.Broker, p.path("nats"), p.name); err != nil {
		return closeAll, err
	}
	opened = append(opened, p.broker.close)
	if err := p.writeFiles(); err != nil {
		return closeAll, err
	}
	if p.orders, err = openOrders(ctx, p.at, p.broker.topic()); err != nil {
		return closeAll, err
	}
	opened = append(opened, p.orders.close)
	if err := p.broker.open(ctx); err != nil {
		return closeAll, err
	}
	if p.inventory, err = openInventory(ctx, p.at, p.broker); err != nil {
		return closeAll, err
	}
	opened = append(opened, p.inventory.shut)
	p.relays = &relays{
		binary: p.options.Binary, config: p.path(configFile), log: p.path(relayLog), flag: p.path("fault"), say: p.view.say,
		args: p.broker.flags(), env: p.broker.environment(p.dir),
	}
	opened = append(opened, p.relays.end)
	p.view.say("%s and %s are ready, files in %s", p.at.describe(), p.broker.describe(), p.dir)
	return closeAll, nil
}

// writeFiles writes what the relay and a reader need. URLs are for this
// account's eyes only, since they may have passwords.
func (p *play) writeFiles() error {
	secret := make(map[string]string)
	maps.Copy(secret, p.broker.files())
	if p.at.kind != kindSQLite {
		secret[ordersDSN], secret[inventoryDSN] = p.at.orders, p.at.inventory
	}
	for name, text := range secret {
		if err := os.WriteFile(p.path(name), []byte(text+"\n"), 0o600); err != nil {
			return err
		}
	}
	for name, text := range map[string]string{configFile: configText(p.at, p.broker), verifyFile: p.at.script()} {
		if err := os.WriteFile(p.path(name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// writingTime spreads the events over long enough to kill relays in between.
func writingTime(events int) time.Duration {
	const least, perSecond = 10 * time.Second, 800
	return max(least, time.Duration(events)*time.Second/perSecond)
}

// drain waits until every event is applied or held dead and the queue is empty.
func (p *play) drain(ctx context.Context) error {
	deadline := now().Add(drainLimit)
	for {
		if err := p.relays.check(); err != nil {
			return err
		}
		pending, err := p.orders.pending(ctx)
		if err != nil {
			return err
		}
		arrived, err := p.inventory.arrived(ctx)
		if err != nil {
			return err
		}
		if pending == 0 && arrived >= p.options.Events {
			return nil
		}
		if now().After(deadline) {
			// Not an error: the examination will say what is missing.
			p.view.say("gave up waiting after %s: %d pending, %d of %d arrived", drainLimit, pending, arrived, p.options.Events)
			return nil
		}
		if !pause(ctx, 50*time.Millisecond) {
			return context.Cause(ctx)
		}
	}
}

func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
