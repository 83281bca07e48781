package checks

import (
	"context"
	"errors"
	"fmt"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/cmd/waybill/internal/adapter"
	"github.com/waybillhq/waybill/cmd/waybill/internal/config"
	"github.com/waybillhq/waybill/reconcile"
	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/postgres"
)

// Outbox is the outbox that a check has for its log, open for writing.
type Outbox struct {
	store    adapter.Store
	Appender store.Appender[store.SQLTx]
	Operator store.Operator
}

// Close closes it.
func (o *Outbox) Close() {
	if o.store != nil {
		_ = o.store.Close()
	}
}

// Outbox opens the outbox of a check. One whose log is a table of its own has
// none: then nothing is open, and that is no error.
func (f *File) Outbox(ctx context.Context, check *reconcile.Check) (*Outbox, error) {
	if check.Log == nil || check.Log.Outbox == nil {
		return &Outbox{}, nil
	}
	name := check.Log.Database
	database := f.Databases[name]
	if database == nil {
		return nil, &waybill.Error{Op: "open outbox", Key: name, Err: errors.New("no such database"), Hint: "name it under databases"}
	}
	where := config.Store{Kind: database.Kind, DSN: database.DSN}
	where.Names.Schema = check.Log.Schema
	st, err := adapter.OpenStore(ctx, where)
	if err != nil {
		return nil, err
	}
	meta, err := st.ReadMeta(ctx)
	if err == nil && (!meta.Trigger || meta.Head) {
		_ = st.Close()
		where.NoTrigger, where.Head = !meta.Trigger, meta.Head
		st, err = adapter.OpenStore(ctx, where)
	}
	if err != nil {
		return nil, &waybill.Error{Op: "open outbox", Key: name, Err: err}
	}
	o := &Outbox{store: st, Operator: st}
	switch x := st.(type) {
	case *postgres.Store:
		o.Appender = x.SQL()
	case store.Appender[store.SQLTx]:
		o.Appender = x
	default:
		_ = st.Close()
		return nil, &waybill.Error{Op: "open outbox", Key: name, Err: fmt.Errorf("the kind %s appends nothing", database.Kind)}
	}
	return o, nil
}
