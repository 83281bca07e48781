package main

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/waybillhq/waybill/broker"
	"github.com/waybillhq/waybill/cmd/waybill/internal/adapter"
	"github.com/waybillhq/waybill/cmd/waybill/internal/config"
	"github.com/waybillhq/waybill/ops"
	"github.com/waybillhq/waybill/relay"
	"github.com/waybillhq/waybill/store"
)

type relayRunCmd struct{}

// Help has the examples.
func (relayRunCmd) Help() string {
	return `The relay needs its database to start, and from then on waits for it as for its broker. It shares the lanes with others of
its kind, and ends in good order at the first SIGTERM or SIGINT. "waybill serve" is the same with probes, metrics and a cleanup.

Examples:

	waybill relay
	waybill relay --set relay.lease_ttl=5s --set log.level=debug`
}

func (c *relayRunCmd) Run(a *app) (err error) {
	loaded, err := a.load()
	if err != nil {
		return err
	}
	st, err := a.openStore(loaded)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	return a.relay(loaded, st, nil, newProbes(st, ops.StatusConfig{}, nil))
}

// relay runs a relay until the command is told to stop. Hooks may be nil.
func (a *app) relay(loaded *config.Loaded, st adapter.Store, hooks chain, probes *probes) (err error) {
	context.AfterFunc(a.ctx, probes.ends)
	publisher, err := a.awaitBroker(loaded.Broker, probes)
	if err != nil || publisher == nil {
		return err
	}
	defer func() { err = errors.Join(err, publisher.Close()) }()
	if err := ensureTopics(a.ctx, publisher, &loaded.Config); err != nil {
		// The relay waits for its broker by itself; only the log tells of it here.
		a.logger.Warn("topics could not be made ready; the relay goes on and waits", "error", err)
	}
	diary := newDiary(a.logger)
	settings := loaded.Relay.Config()
	settings.Logger, settings.Events = a.logger, diary.events()
	settings.Heartbeat = loaded.CDC.Heartbeat
	source, err := adapter.OpenSource(&loaded.Config, a.logger)
	switch {
	case err != nil && settings.Mode == store.ModeCDC:
		return err
	case err != nil:
		a.logger.Warn("the database's own log cannot be read from here; the relay can only poll", "error", err)
	case source != nil:
		settings.Source = source
		defer func() { err = errors.Join(err, source.Close()) }()
	}
	if hooks != nil {
		settings.Events = hooks(settings.Events)
	}
	r, err := relay.New(st, publisher, settings)
	if err != nil {
		return usageError{err}
	}
	probes.runs(r)
	where, whither := adapter.Describe(loaded.Store), config.Redact(adapter.DescribeBroker(loaded.Broker), a.secrets)
	a.logger.Info("relay starts", "from", where, "to", whither, "owner", r.Owner())
	stop := diary.start()
	defer stop()
	ctx, end := context.WithCancel(a.ctx)
	var beside sync.WaitGroup
	beside.Go(func() { a.readBack(ctx, st, publisher) })
	defer func() { end(); beside.Wait() }()
	return r.Run(a.ctx)
}

// awaitBroker opens the broker, trying for as long as it takes: a relay that is
// restarted during an outage should need nobody to start it again. It returns
// nil when it is told to stop meanwhile.
func (a *app) awaitBroker(c config.Broker, probes *probes) (adapter.Broker, error) {
	const least, most = 200 * time.Millisecond, 5 * time.Second
	for wait := least; ; wait = min(2*wait, most) {
		opened, err := adapter.OpenBroker(a.ctx, c, a.logger)
		var wrong *adapter.ConfigError
		switch {
		case err == nil:
			return opened, nil
		case a.ctx.Err() != nil:
			return nil, nil
		case errors.As(err, &wrong), c.Kind == "embedded":
			return nil, err
		}
		probes.waits(err)
		a.logger.Warn("broker cannot be reached, the relay waits for it", "error", err, "next_try_in", wait.String())
		if !pause(a.ctx, wait/2+rand.N(wait/2)) {
			return nil, nil
		}
	}
}

// ensureTopics creates the topics that the configuration names.
func ensureTopics(ctx context.Context, admin broker.TopicAdmin, c *config.Config) error {
	names := slices.Sorted(maps.Keys(c.Relay.Topics))
	if len(names) == 0 {
		return nil
	}
	specs := make([]broker.TopicSpec, len(names))
	for i, name := range names {
		specs[i] = broker.TopicSpec{Name: name, Partitions: c.Broker.Partitions}
	}
	return admin.EnsureTopics(ctx, specs)
}
