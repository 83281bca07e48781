package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
	"github.com/waybillhq/waybill/broker/kafka"
	"github.com/waybillhq/waybill/cmd/waybill/internal/adapter"
	"github.com/waybillhq/waybill/cmd/waybill/internal/debezium"
	"github.com/waybillhq/waybill/ops"
	"github.com/waybillhq/waybill/store"
)

type deliveryCmd struct {
	Show   deliveryShowCmd   `cmd:"" help:"Show who sends the events, and what is not confirmed yet."`
	Switch deliverySwitchCmd `cmd:"" help:"Hand the sending over to Debezium, or take it back."`
}

type deliveryShowCmd struct {
	JSON bool `name:"json" help:"Print JSON."`
}

// Help has the examples.
func (deliveryShowCmd) Help() string {
	return `With external delivery, events above the cut are not queued: a program such as Debezium reads them from the database's log. They
count as unconfirmed until "waybill serve" has found them in their topics. Counted are the newest 100,000.

Examples:

	waybill delivery show
	waybill delivery show --json`
}

func (c *deliveryShowCmd) Run(a *app) error {
	_, st, err := a.open()
	if err != nil {
		return err
	}
	defer func() { _ = st.Close() }()
	d, err := ops.ReadDelivery(a.ctx, st)
	if err != nil {
		return err
	}
	if c.JSON {
		return a.printJSON(d)
	}
	return a.print(deliveryText(&d))
}

func deliveryText(d *ops.DeliveryStatus) string {
	if d.Mode == "relay" {
		return "relay: every event is queued, and relays send it\n"
	}
	text := fmt.Sprintf("%s: events above %d are another program's to send; %d of them not confirmed yet", d.Mode, d.Cut, d.Unconfirmed)
	if d.Unconfirmed > 0 {
		text += fmt.Sprintf(", the oldest for %s", time.Duration(d.OldestUnconfirmedSeconds*float64(time.Second)).Round(100*time.Millisecond))
	}
	return text + "\n"
}

type deliverySwitchCmd struct {
	To        string        `arg:"" enum:"external,relay" help:"Who is to send: ${enum}."`
	Wait      time.Duration `default:"1m" help:"To external: how long to wait for relays to send what is queued; to relay: how long topics may take to be read. 0s does not wait."`
	Quiet     time.Duration `default:"5s" help:"To relay: topics are read until nothing has come for so long."`
	AllowDead bool          `help:"To external: go on although dead events hold their keys, whose later events are then sent."`
	acting    `embed:""`
}

// Help has the examples.
func (deliverySwitchCmd) Help() string {
	return `To external: the queue trigger is removed and the cut recorded, between two transactions. Relays send what is up to the cut, and the
command waits for that; what is above is for the connector that "waybill debezium-config" prints. Create it afterwards:
it begins with the cut. Let "waybill serve" run on: it reads the topics back and writes receipts.

To relay: stop the connector first, and let a relay run. Topics are read to their ends; what is above the cut and in none
is queued and sent; then the trigger is installed again. An event that is written in that last moment may be sent after the next one of its key.

Both may be repeated after an interruption. docs/guide/debezium.md tells when to switch, and how.

Examples:

	waybill delivery switch external --reason "one cluster of relays is not enough"
	waybill delivery switch relay --reason "back to one process less"`
}

// switchView is what a switch prints.
type switchView struct {
	Mode   string `json:"mode"`          // external or relay, from now on
	Cut    int64  `json:"cut,omitempty"` // to external: the greatest id that is the relays'
	Queued int    `json:"queued"`        // to external: events that relays have yet to send; to relay: events that were queued by this
}

func (c *deliverySwitchCmd) Run(a *app) error {
	action, err := c.action()
	if err != nil {
		return err
	}
	loaded, st, err := a.open()
	if err != nil {
		return err
	}
	defer func() { _ = st.Close() }()
	external, ok := st.(store.External)
	if !ok {
		return &waybill.Error{Op: "delivery switch", Key: loaded.Store.Kind, Err: errors.New("no program is known that reads this kind of database's log"), Hint: "known: postgres, mysql"}
	}
	view := switchView{Mode: c.To}
	if c.To == store.ViaExternal {
		err = c.handOver(a, st, external, action, &view)
	} else {
		var b adapter.Broker
		if b, err = adapter.OpenBroker(a.ctx, loaded.Broker, a.logger); err != nil {
			return err
		}
		defer func() { _ = b.Close() }()
		err = c.takeBack(a, b, st, external, action, &view)
	}
	if err != nil {
		return err
	}
	if c.JSON {
		return a.printJSON(view)
	}
	return a.print(view.text())
}

func (v *switchView) text() string {
	if v.Mode != store.ViaExternal {
		return fmt.Sprintf("relays send again; %d events that no topic had were queued\n", v.Queued)
	}
	text := fmt.Sprintf("events above %d are not queued from now on\n", v.Cut)
	if v.Queued > 0 {
		text += fmt.Sprintf("%d events up to it are queued still: wait for relays to send them (waybill status) before the connector begins, or events of one key change their order\n", v.Queued)
	}
	return text + "next: waybill debezium-config, and create the connector; keep waybill serve running, which confirms what the connector sends\n"
}

func (c *deliverySwitchCmd) handOver(a *app, st adapter.Store, external store.External, action store.Action, view *switchView) error {
	counts, err := st.Counts(a.ctx)
	if err != nil {
		return err
	}
	if counts.Dead > 0 && !c.AllowDead {
		return &waybill.Error{
			Op: "delivery switch", Err: fmt.Errorf("%d dead events hold their keys, and nobody would hold the later ones", counts.Dead),
			Hint: "decide first (waybill dead list), or say --allow-dead",
		}
	}
	delivery, err := external.HandOver(a.ctx, action)
	if err != nil {
		return err
	}
	view.Cut = delivery.Cut
	for deadline := now().Add(c.Wait); ; {
		if counts, err = st.Counts(a.ctx); err != nil {
			return err
		}
		view.Queued = int(counts.Pending)
		if counts.Pending == 0 || !now().Before(deadline) || !pause(a.ctx, 100*time.Millisecond) {
			return a.ctx.Err()
		}
	}
}

func (c *deliverySwitchCmd) takeBack(a *app, b adapter.Broker, st adapter.Store, external store.External, action store.Action, view *switchView) (err error) {
	if subscriber, ok := b.(broker.Subscriber); ok && c.Wait > 0 {
		ctx, cancel := context.WithTimeout(a.ctx, c.Wait)
		err := ops.NewReadBack(external, subscriber, &ops.ReadBackConfig{Logger: a.logger}).CatchUp(ctx, c.Quiet)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) {
			return &waybill.Error{Op: "delivery switch", Err: fmt.Errorf("records are still coming after %s", c.Wait), Hint: "has the connector stopped? Else allow more time: --wait"}
		}
		if err != nil {
			return err
		}
	}
	if view.Queued, err = c.queueMissing(a, st, action); err != nil {
		return err
	}
	last, err := external.TakeBack(a.ctx, action)
	view.Queued += last
	return err
}

// queueMissing queues what is in no topic, and waits until relays have sent it,
// while what is written meanwhile is not queued yet: so it cannot overtake.
func (c *deliverySwitchCmd) queueMissing(a *app, st adapter.Store, action store.Action) (queued int, err error) {
	d, err := ops.ReadDelivery(a.ctx, st)
	if err != nil || d.Mode != store.ViaExternal {
		return 0, err
	}
	for deadline := now().Add(c.Wait); now().Before(deadline); {
		missing, err := st.Find(a.ctx, store.Filter{Unqueued: true, After: d.Cut, Limit: 1000})
		if err != nil || len(missing) == 0 {
			return queued, err
		}
		ids := make([]string, len(missing))
		for i := range missing {
			ids[i] = missing[i].Event.ID
		}
		if _, err := ops.Requeue(a.ctx, st, action, ids...); err != nil {
			return queued, err
		}
		queued += len(ids)
		for counts, err := st.Counts(a.ctx); err != nil || counts.Pending > 0; counts, err = st.Counts(a.ctx) {
			if err != nil || !now().Before(deadline) || !pause(a.ctx, 100*time.Millisecond) {
				return queued, errors.Join(err, a.ctx.Err())
			}
		}
	}
	return queued, nil
}

type debeziumConfigCmd struct {
	Store string `enum:",postgres,mysql" default:"" placeholder:"KIND" help:"Print a pattern for this kind of database, postgres or mysql, without looking at any."`
	Name  string `default:"waybill" help:"Of the connector, its slot or its replica, and what its own topics begin with."`
}

// Help has the examples.
func (debeziumConfigCmd) Help() string {
	return `Prints the JSON that Kafka Connect takes at PUT /connectors/NAME/config, for Debezium 3. It begins above the recorded cut, and sends
records that waybill's consumers read as those of a relay in the raw format. The password is left to Kafka Connect
(config.providers=env in the worker's configuration), and not shown.

Examples:

	waybill debezium-config
	waybill debezium-config --store mysql
	waybill debezium-config | curl -X PUT -H 'Content-Type: application/json' --data @- http://localhost:8083/connectors/waybill/config`
}

func (c *debeziumConfigCmd) Run(a *app) error {
	o := &debezium.Outbox{Kind: c.Store, Table: store.Names{}.WithDefaults().Event, Partitions: kafka.DefaultPartitions}
	if c.Store == "" {
		loaded, st, err := a.open()
		if err != nil {
			return err
		}
		defer func() { _ = st.Close() }()
		d, err := ops.ReadDelivery(a.ctx, st)
		if err != nil {
			return err
		}
		if d.Mode != store.ViaExternal {
			return &waybill.Error{
				Op: "debezium-config", Err: errors.New("relays send the events, and a connector would send them again"),
				Hint: "waybill delivery switch external --reason TEXT first; a pattern alone: --store KIND",
			}
		}
		names := loaded.Store.Names.Store().WithDefaults()
		o.Kind, o.DSN, o.Schema, o.Table, o.Cut = loaded.Store.Kind, loaded.Store.DSN, names.Schema, names.Event, d.Cut
		o.Partitions = cmp.Or(loaded.Broker.Partitions, kafka.DefaultPartitions)
		if loaded.Broker.Kind == "kafka" {
			if k, err := kafka.ParseURL(loaded.Broker.URL); err == nil {
				o.Kafka = strings.Join(k.Brokers, ",")
			}
		}
	}
	config, err := debezium.Connector(c.Name, o)
	if err != nil {
		return err
	}
	return a.printJSON(config)
}

// readBack confirms what another program delivers, for as long as one does.
func (a *app) readBack(ctx context.Context, st adapter.Store, b adapter.Broker) {
	external, ok := st.(store.External)
	subscriber, reads := b.(broker.Subscriber)
	if !ok || !reads {
		return
	}
	_ = ops.NewReadBack(external, subscriber, &ops.ReadBackConfig{Logger: a.logger}).Run(ctx) // nil, when ctx ends
}
