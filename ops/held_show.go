package ops

import (
	"context"
	"time"

	"github.com/waybillhq/waybill/store"
)

// HeldShower is what [ShowHeld] reads.
type HeldShower interface {
	store.HeldReader
	store.Effects
}

// CallView is a call of an event to another system as people and programs read
// it. Its JSON form is stable.
type CallView struct {
	Name            string    `json:"name"`
	State           string    `json:"state"`           // DOING or DONE
	InDoubt         bool      `json:"in_doubt"`        // nobody is at it, nobody knows what it did, and a second one may do it twice
	IdempotencyKey  string    `json:"idempotency_key"` // what the other system was given
	Idempotent      bool      `json:"idempotent"`      // the other system takes a second call with the key for the first
	Tries           int       `json:"tries"`           // how often it was begun
	StartedAt       time.Time `json:"started_at"`
	Owner           string    `json:"owner"`                       // the process that began it last
	OwnedForSeconds float64   `json:"owned_for_seconds,omitempty"` // how much longer the owner counts as being at it
	Result          *DataView `json:"result,omitempty"`            // what the other system answered
}

// ShowHeld returns the view of an event that a group keeps aside, with its calls
// to other systems, and with the record's value if asked for; false where the
// group does not hold it.
func ShowHeld(ctx context.Context, st HeldShower, group, eventID string, record bool) (view HeldView, ok bool, err error) {
	found, err := st.ListHeld(ctx, group, store.HeldFilter{EventID: eventID, Limit: 1})
	if err != nil || len(found) == 0 {
		return HeldView{}, false, err
	}
	calls, err := st.ListEffects(ctx, group, eventID)
	if err != nil {
		return HeldView{}, false, err
	}
	view = ViewHeld(&found[0], record)
	for i := range calls {
		view.Calls = append(view.Calls, viewCall(&calls[i]))
	}
	return view, true, nil
}

func viewCall(c *store.EffectCall) CallView {
	v := CallView{
		Name: c.Name, State: string(c.State), InDoubt: inDoubt(c) && c.ExpiresIn <= 0, IdempotencyKey: c.Key, Idempotent: c.Idempotent,
		Tries: c.Tries, StartedAt: c.StartedAt.UTC(), Owner: c.Owner,
	}
	if c.State == store.EffectDoing && c.ExpiresIn > 0 {
		v.OwnedForSeconds = seconds(c.ExpiresIn)
	}
	if len(c.Result) > 0 {
		v.Result = viewData(c.Result)
	}
	return v
}
