package redisfilter

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/rueidis"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/inbox"
)

// Config adjusts a [Filter]. Its zero value, and nil, are right for most.
type Config struct {
	// Prefix begins every key. "" means "waybill:consumed:".
	Prefix string
	// Keep is how long an event is remembered, to the second. 0 means 24 h.
	Keep time.Duration
}

// Filter remembers consumed events in Redis. It may be used from several
// goroutines.
type Filter struct {
	client rueidis.Client
	config Config
}

var _ inbox.Prefilter = (*Filter)(nil)

// New returns a filter over a client, which stays the caller's to close.
func New(client rueidis.Client, config *Config) *Filter {
	f := &Filter{client: client}
	if config != nil {
		f.config = *config
	}
	if f.config.Prefix == "" {
		f.config.Prefix = "waybill:consumed:"
	}
	if f.config.Keep == 0 {
		f.config.Keep = 24 * time.Hour
	}
	return f
}

// Seen reports for each id, in their order, whether Redis remembers it, which is
// a reason to look into the database and no more.
func (f *Filter) Seen(ctx context.Context, group string, ids []string) ([]bool, error) {
	commands := make(rueidis.Commands, len(ids))
	for i, id := range ids {
		commands[i] = f.client.B().Exists().Key(f.key(group, id)).Build()
	}
	seen := make([]bool, len(ids))
	for i, answer := range f.client.DoMulti(ctx, commands...) {
		n, err := answer.AsInt64()
		if err != nil {
			return nil, &waybill.Error{Op: "ask redis for", Key: ids[i], Err: err}
		}
		seen[i] = n > 0
	}
	return seen, nil
}

// Remember is for ids whose consumption is committed. Called too early, it costs
// a look into the database for each repetition, and nothing else.
func (f *Filter) Remember(ctx context.Context, group string, ids []string) error {
	commands := make(rueidis.Commands, len(ids))
	for i, id := range ids {
		commands[i] = f.client.B().Set().Key(f.key(group, id)).Value("1").ExSeconds(max(1, int64(f.config.Keep/time.Second))).Build()
	}
	for i, answer := range f.client.DoMulti(ctx, commands...) {
		if err := answer.Error(); err != nil {
			return &waybill.Error{Op: "tell redis of", Key: ids[i], Err: err}
		}
	}
	return nil
}

// Once calls consume, unless Redis remembers the id and consumed, which asks the
// database, confirms it. Consume must protect itself in its own transaction, as
// guard.Consumed does, and returns nil once that is committed; its error is
// returned. Trouble with Redis is none for the caller.
func (f *Filter) Once(ctx context.Context, group, id string, consumed func(ctx context.Context) (bool, error), consume func(ctx context.Context) error) error {
	if seen, err := f.Seen(ctx, group, []string{id}); err == nil && seen[0] {
		done, err := consumed(ctx)
		if err != nil || done {
			return err
		}
	}
	if err := consume(ctx); err != nil {
		return err
	}
	_ = f.Remember(ctx, group, []string{id}) // it may forget
	return nil
}

// key is different for different pairs, whatever the names contain.
func (f *Filter) key(group, id string) string {
	return fmt.Sprintf("%s%d:%s:%s", f.config.Prefix, len(group), group, id)
}
