package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/waybillhq/waybill"
)

// Aggregate names what versions are counted of. Its parts fit the columns: at
// most waybill.MaxKeyLen bytes, and waybill.MaxTypeLen for Type, of valid UTF-8
// without the byte 0.
type Aggregate struct{ TenantID, Type, ID string }

// Progress is a row of consumer_progress: how far a group has come with one
// aggregate.
type Progress struct {
	Aggregate Aggregate
	Version   int64 // 0: the group has settled nothing of it
	EventID   string
}

// Advance is one step of an aggregate's progress.
type Advance struct {
	Aggregate Aggregate
	From      int64 // as it was read; 0 also where there is no row
	To        int64 // not less than From
	EventID   string
}

// ErrMoved says that the progress of an aggregate is no longer what it was when
// it was read: another transaction was faster. What was decided by it is void.
var ErrMoved = errors.New("another transaction has moved the progress")

// ProgressTx reads and writes consumer_progress.
//
// A consumer reads the progress of a batch without a lock, decides by it, and
// writes at the end on the condition that nothing has changed. So two readers of
// one aggregate cannot both pass the same step, in any interleaving, and the
// healthy path holds no lock while handlers run. An event that has to wait is
// held under the lock of LockProgress, for this race: A reads version 1 and
// applies version 2; B reads version 1 and is about to hold version 3; A commits;
// B commits, and nobody is left to wake version 3. With the lock either B waits
// for A and finds version 2, or A's AdvanceProgress waits for B and finds what it
// holds.
type ProgressTx interface {
	// ReadProgress returns the progress of each aggregate, in their order, without
	// a lock.
	ReadProgress(ctx context.Context, group string, aggregates []Aggregate) ([]Progress, error)
	// LockProgress locks an aggregate's row until the transaction ends, making it
	// first where it is missing, and returns it.
	LockProgress(ctx context.Context, group string, aggregate Aggregate) (Progress, error)
	// AdvanceProgress makes the steps, each aggregate at most once, whatever their
	// order. It returns [ErrMoved] when one does not begin at its From, after
	// which the transaction can only be rolled back. It then makes BLOCKED what is
	// WAITING of these aggregates, in any key, with a version of at most To + 1,
	// and returns how many events that were.
	AdvanceProgress(ctx context.Context, group string, advances []Advance) (woken int, err error)
}

// AggregateOf names an event's aggregate as the columns can keep it: parts that
// do not fit are kept as their hash.
func AggregateOf(e *waybill.Event) Aggregate {
	return Aggregate{
		TenantID: fitted(e.TenantID, waybill.MaxKeyLen), Type: fitted(e.AggregateType, waybill.MaxTypeLen), ID: fitted(e.AggregateID, waybill.MaxKeyLen),
	}
}

func fitted(text string, limit int) string {
	if len(text) <= limit && utf8.ValidString(text) && !strings.ContainsRune(text, 0) {
		return text
	}
	sum := sha256.Sum256([]byte(text))
	return "sha256:" + hex.EncodeToString(sum[:])
}
