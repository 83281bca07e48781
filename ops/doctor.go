package ops

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/waybillhq/waybill/broker"
	"github.com/waybillhq/waybill/cdc"
	"github.com/waybillhq/waybill/store"
)

// DoctorStore is what [Doctor] examines.
type DoctorStore interface {
	store.Schema
	store.Inspector
	store.Leases
}

// DoctorConfig says what the installation is meant to be. Nil means defaults.
type DoctorConfig struct {
	// NoTrigger says that producers write the queue row themselves, so no
	// trigger is expected.
	NoTrigger bool
	// Head says that heads are to be kept.
	Head bool
	// Checker, where set, examines the broker too, for these topics.
	Checker broker.Checker
	Topics  []string
	// InboxRetention is the age at which a cleanup forgets what consumers have
	// consumed. 0 means never.
	InboxRetention time.Duration
	// Limit bounds the event ids that one finding names. 0 means 100.
	Limit int
	// MaxPendingAge is as in [StatusConfig].
	MaxPendingAge time.Duration
	// Inboxes are the consumers' databases.
	Inboxes []Inbox
	// Source, where set, is the database's own log, and Mode what relays are
	// configured for, as in relay.Config.
	Source cdc.Source
	Mode   string
	// Now, where set, is this process's clock, to be compared with the database's.
	Now func() time.Time
}

// Names of the doctor's examinations.
const (
	CheckSchema   = "schema"
	CheckTrigger  = "trigger"
	CheckHeads    = "heads"
	CheckUnqueued = "unqueued events"
	CheckDelivery = "delivery"
	CheckOrphans  = "orphaned queue rows"
	CheckLeases   = "leases"
	CheckBroker   = "broker"
	CheckWrite    = "write"
	CheckRelays   = "relays"
	CheckDead     = "dead events"
	CheckPending  = "pending events"
	CheckClock    = "clock"
	CheckConsumer = "consumer"
	CheckPrepared = "prepared transactions"
)

// Examination is one thing that the doctor looked at.
type Examination struct {
	Check    string   `json:"check"`
	OK       bool     `json:"ok"`
	Detail   string   `json:"detail"`
	Hint     string   `json:"hint,omitempty"`      // what to do when not OK
	EventIDs []string `json:"event_ids,omitempty"` // at most DoctorConfig.Limit
	More     bool     `json:"more,omitempty"`      // there are others beyond the limit
}

// Diagnosis is all that the doctor looked at.
type Diagnosis struct {
	Examinations []Examination `json:"examinations"`
}

// Healthy reports whether every examination was satisfied.
func (d *Diagnosis) Healthy() bool {
	for _, e := range d.Examinations {
		if !e.OK {
			return false
		}
	}
	return true
}

// Doctor looks for what does not heal by itself. It changes nothing. An error
// means that an examination could not be made; those before it are returned.
func Doctor(ctx context.Context, st DoctorStore, config *DoctorConfig) (Diagnosis, error) {
	d := doctor{store: st}
	if config != nil {
		d.config = *config
	}
	if d.config.Limit <= 0 {
		d.config.Limit = 100
	}
	goOn, err := d.schema(ctx)
	for _, examine := range []func(context.Context) error{d.write, d.delivery, d.unqueued, d.orphans, d.leases, d.relays, d.log, d.dead, d.pending, d.prepared, d.clock, d.broker, d.consumers, d.retention} {
		if err != nil || !goOn {
			break
		}
		err = examine(ctx)
	}
	return d.diagnosis, err
}

type doctor struct {
	store     DoctorStore
	config    DoctorConfig
	diagnosis Diagnosis
}

func (d *doctor) found(e Examination) { d.diagnosis.Examinations = append(d.diagnosis.Examinations, e) }

// schema also compares the trigger. Without tables of the right version
// nothing else can be examined.
func (d *doctor) schema(ctx context.Context) (goOn bool, err error) {
	meta, err := d.store.ReadMeta(ctx)
	switch {
	case errors.Is(err, store.ErrNoSchema), err == nil && !meta.Outbox:
		d.found(Examination{Check: CheckSchema, Detail: "the outbox tables do not exist", Hint: "run: waybill migrate"})
		return false, nil
	case errors.Is(err, store.ErrSchemaOlder):
		d.found(Examination{
			Check: CheckSchema, Detail: fmt.Sprintf("the tables have version %d, this release needs %d", meta.Version, store.SchemaVersion),
			Hint: "run: waybill migrate",
		})
		return false, nil
	case errors.Is(err, store.ErrSchemaNewer):
		d.found(Examination{
			Check: CheckSchema, Detail: fmt.Sprintf("the tables have version %d, this release knows %d", meta.Version, store.SchemaVersion),
			Hint: "use the release that migrated them",
		})
		return false, nil
	case err != nil:
		return false, err
	}
	d.found(Examination{Check: CheckSchema, OK: true, Detail: fmt.Sprintf("version %d", meta.Version)})
	if _, external := aboveCut(ctx, d.store); !external {
		d.trigger(meta)
	}
	d.heads(meta)
	return true, nil
}

func (d *doctor) trigger(meta store.Meta) {
	e := Examination{Check: CheckTrigger, OK: meta.Trigger != d.config.NoTrigger}
	switch {
	case meta.Trigger && e.OK:
		e.Detail = "installed: every insert is queued"
	case e.OK:
		e.Detail = "not installed, as configured: producers queue their events"
	case meta.Trigger:
		e.Detail = "installed, but the configuration says no_trigger"
		e.Hint = "run: waybill migrate --no-trigger, or remove no_trigger from the configuration"
	default:
		e.Detail = "not installed: an event inserted by plain SQL would never be sent"
		e.Hint = "run: waybill migrate, or set no_trigger where producers write the queue row themselves"
	}
	d.found(e)
}

// heads says nothing where there are none and none are wanted.
func (d *doctor) heads(meta store.Meta) {
	switch {
	case d.config.Head && !meta.Head:
		d.found(Examination{
			Check: CheckHeads, Detail: "the configuration says head, and there is no table of heads",
			Hint: "run: waybill migrate --head, or remove head from the configuration",
		})
	case meta.Head && d.config.NoTrigger && !d.config.Head:
		d.found(Examination{
			Check: CheckHeads, Detail: "there is a table of heads, and without a trigger producers write it only where they are told to",
			Hint: "set store.head: true, and Config.Head in the producers",
		})
	case meta.Head && !d.config.NoTrigger && !meta.HeadTrigger:
		d.found(Examination{
			Check: CheckHeads, Detail: "there is a table of heads, and the trigger that keeps it is gone: heads are older than their latest events",
			Hint: "run: waybill migrate, which installs it and fills in what was missed while the events are there",
		})
	case meta.Head:
		d.found(Examination{Check: CheckHeads, OK: true, Detail: "kept"})
	}
}

// unqueued looks for facts with neither queue row nor receipt: nothing will
// ever send them.
func (d *doctor) unqueued(ctx context.Context) error {
	events, err := d.store.Find(ctx, unqueuedFilter(ctx, d.store, d.config.Limit+1))
	if err != nil {
		return err
	}
	e := Examination{Check: CheckUnqueued, OK: len(events) == 0, Detail: "none"}
	if !e.OK {
		e.More = len(events) > d.config.Limit
		for _, t := range events[:min(len(events), d.config.Limit)] {
			e.EventIDs = append(e.EventIDs, t.Event.ID)
		}
		e.Detail = fmt.Sprintf("%s will never be sent: no queue row and no receipt", atLeast(len(e.EventIDs), e.More, "event"))
		e.Hint = "requeue them: waybill doctor --requeue --reason TEXT; then find out who inserts without queueing (is the trigger installed?)"
	}
	d.found(e)
	return nil
}

// unqueuedFilter leaves out what another program is to send.
func unqueuedFilter(ctx context.Context, st any, limit int) store.Filter {
	filter := store.Filter{Unqueued: true, Limit: limit}
	if cut, external := aboveCut(ctx, st); external {
		filter.Newest, filter.After = true, cut+1
	}
	return filter
}

// orphans looks for queue rows whose event was deleted or truncated away.
func (d *doctor) orphans(ctx context.Context) error {
	rows, err := d.store.Orphans(ctx, d.config.Limit+1)
	if err != nil {
		return err
	}
	e := Examination{Check: CheckOrphans, OK: len(rows) == 0, Detail: "none"}
	if !e.OK {
		e.More = len(rows) > d.config.Limit
		n := min(len(rows), d.config.Limit)
		ids := make([]string, 0, 5)
		for _, r := range rows[:min(n, cap(ids))] {
			ids = append(ids, fmt.Sprint(r.ID))
		}
		e.Detail = fmt.Sprintf("%s without an event: ids %s", atLeast(n, e.More, "queue row"), strings.Join(ids, ", "))
		if n > len(ids) || e.More {
			e.Detail += ", ..."
		}
		e.Hint = "somebody deleted from or truncated the event table; restore the events, or delete these queue rows"
	}
	d.found(e)
	return nil
}

// leases tells an abandoned lane from one that is free: a lane whose owner
// vanished is taken over within seconds, so it stays visible only where no
// relay is running.
func (d *doctor) leases(ctx context.Context) error {
	leases, err := d.store.ListLeases(ctx)
	if err != nil {
		return err
	}
	var lanes LaneStatus
	lanes.count(leases)
	e := Examination{Check: CheckLeases, OK: lanes.Owned == lanes.Total}
	switch {
	case e.OK:
		e.Detail = fmt.Sprintf("%d of %d lanes have a live owner", lanes.Owned, lanes.Total)
	case lanes.Expired > 0:
		e.Detail = fmt.Sprintf("%d lanes belong to a relay that vanished", lanes.Expired)
		e.Hint = "a running relay takes them over by itself within seconds; if this stays, " + fixStartRelay
	case lanes.Owned > 0:
		e.Detail = fmt.Sprintf("%d of %d lanes have no owner", lanes.Free, lanes.Total)
		e.Hint = fixLanes
	default:
		e.Detail = "no lane has an owner: no relay is running"
		e.Hint = fixStartRelay
	}
	d.found(e)
	return nil
}

func (d *doctor) broker(ctx context.Context) error {
	if d.config.Checker == nil {
		return nil
	}
	for _, c := range d.config.Checker.Check(ctx, d.config.Topics) {
		e := Examination{Check: CheckBroker + ": " + c.Name, OK: c.OK, Detail: c.Detail}
		if !c.OK {
			e.Hint = c.Hint
		}
		d.found(e)
	}
	return nil
}

// RequeueUnqueued puts every event that has neither queue row nor receipt into
// the queue, and returns what became of each.
func RequeueUnqueued(ctx context.Context, st interface {
	store.Inspector
	store.Operator
}, action store.Action,
) ([]store.Result, error) {
	var results []store.Result
	filter := unqueuedFilter(ctx, st, page)
	for {
		events, err := st.Find(ctx, filter)
		if err != nil || len(events) == 0 {
			return results, err
		}
		ids := make([]string, len(events))
		for i, t := range events {
			ids[i] = t.Event.ID
		}
		part, err := Requeue(ctx, st, action, ids...)
		results = append(results, part...)
		if err != nil {
			return results, err
		}
		filter.After = events[len(events)-1].ID
	}
}

func atLeast(n int, more bool, noun string) string {
	if more {
		return fmt.Sprintf("more than %d %ss", n, noun)
	}
	return fmt.Sprintf("%d %s", n, plural(int64(n), noun, noun+"s"))
}
