package bench

import (
	"context"
	"errors"

	"github.com/waybillhq/waybill/store"
)

// bench is what all nouns work with.
type bench struct {
	options  *Options
	host     Host
	versions Versions
	site     *site
	db       *database
	house    *house
	source   *source
	expected int // events that must be in the table
}

func newBench(ctx context.Context, o *Options) (_ *bench, err error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	b := &bench{options: o, host: newHost(), versions: newVersions()}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.leave(ctx))
		}
	}()
	if b.site, err = newSite(ctx, o.Store); err != nil {
		return nil, err
	}
	if b.db, err = openDatabase(ctx, b.site.kind, b.site.dsn); err != nil {
		return nil, err
	}
	if err = b.db.store.Migrate(ctx, store.MigrateOptions{SkipInbox: true}); err != nil {
		return nil, err
	}
	if b.house, err = newHouse(ctx, o.Broker); err != nil {
		return nil, err
	}
	b.source = newSource(b.house.topic, o)
	b.versions.Store, b.versions.Broker = b.db.version(ctx), b.house.version(ctx)
	return b, nil
}

// leave removes all that was made.
func (b *bench) leave(ctx context.Context) error {
	var errs []error
	if b.house != nil {
		errs = append(errs, b.house.close(ctx))
	}
	if b.db != nil {
		errs = append(errs, b.db.close())
	}
	if b.site != nil {
		errs = append(errs, b.site.leave(ctx))
	}
	return errors.Join(errs...)
}

// task begins a task for an arm at the bench's places.
func (b *bench) task(arm string) task {
	return task{Arm: arm, Store: b.site.kind, DSN: b.site.dsn, Broker: b.house.kind, URL: b.house.url, Topic: b.house.topic}
}
