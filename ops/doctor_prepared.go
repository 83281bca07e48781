package ops

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/waybillhq/waybill/store"
)

// preparedPatience is how long a prepared transaction may wait for its coordinator,
// who nearly always ends it at once.
const preparedPatience = 2 * time.Second

// prepared looks for transactions that were prepared and then left: they keep
// relays reading again what they have read, and whatever they wrote stays unseen.
func (d *doctor) prepared(ctx context.Context) error {
	lister, ok := d.store.(store.PreparedLister)
	if !ok {
		return nil
	}
	left, err := lister.ListPrepared(ctx)
	if err != nil {
		return err
	}
	if len(left) > 0 {
		if err := pause(ctx, preparedPatience); err != nil {
			return err
		}
		now, err := lister.ListPrepared(ctx)
		if err != nil {
			return err
		}
		left = slices.DeleteFunc(left, func(p store.PreparedTransaction) bool { return !slices.Contains(now, p) })
		left = left[:min(len(left), len(now))] // those without a name are alike
	}
	if len(left) == 0 {
		d.found(Examination{Check: CheckPrepared, OK: true, Detail: "none was left"})
		return nil
	}
	e := Examination{Check: CheckPrepared, More: len(left) > d.config.Limit}
	e.Detail = fmt.Sprintf("%d %s left by the coordinator; until the end, what was written is not sent, and relays read the newest events again and again",
		len(left), plural(int64(len(left)), "transaction is", "transactions are"))
	e.Hint = "their names need the right XA_RECOVER_ADMIN; end each as its coordinator decided, with XA COMMIT or XA ROLLBACK and its name"
	for i, p := range left[:min(len(left), d.config.Limit)] {
		if p.Name == "" {
			continue
		}
		if i == 0 {
			e.Detail += ": " + p.Name
			e.Hint = fmt.Sprintf("end each as its coordinator decided, if that is not at it: %s; or %s;", p.Commit, p.Rollback)
		} else {
			e.Detail += "; " + p.Name
		}
	}
	d.found(e)
	return nil
}
