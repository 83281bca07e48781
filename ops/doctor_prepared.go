package ops

import (
	"context"
	"fmt"
	"slices"
	"strings"
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
		if !rest(ctx, preparedPatience) {
			return ctx.Err()
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
	var names, ends []string
	for _, p := range left[:min(len(left), d.config.Limit)] {
		if p.Name != "" {
			names = append(names, p.Name)
			ends = append(ends, fmt.Sprintf("%s; or %s;", p.Commit, p.Rollback))
		}
	}
	if len(names) > 0 {
		e.Detail += ": " + strings.Join(names, "; ")
	}
	e.Hint = endPrepared(ends, slices.ContainsFunc(left, func(p store.PreparedTransaction) bool { return p.Name == "" }))
	d.found(e)
	return nil
}

// endPrepared says how to end each transaction that has a name, and where the
// names of others are hidden, how to learn them.
func endPrepared(ends []string, hidden bool) string {
	hint := "end each as its coordinator decided, if that is not at it"
	if len(ends) > 0 {
		hint += ": " + strings.Join(ends, " ")
	}
	if hidden {
		hint += " (whose names are not seen: this account may not read them, on MySQL for want of the right XA_RECOVER_ADMIN)"
	}
	return hint
}
