package ops

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/waybillhq/waybill/store"
)

// fingerprintMark begins a fingerprint, which tells it from a part of an error.
const fingerprintMark = "err-"

// What differs between two occurrences of one error: the longest first.
var varying = regexp.MustCompile(`"[^"]*"|'[^']*'|[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|\b[0-9a-fA-F]*[0-9][0-9a-fA-F]*\b|[0-9]+`)

// Fingerprint returns what errors that differ in numbers, ids and quoted parts
// alone have in common, as a short text: "err-5f2b9c01".
func Fingerprint(text string) string {
	if text == "" {
		return ""
	}
	plain := strings.Join(strings.Fields(varying.ReplaceAllString(text, "#")), " ")
	sum := sha256.Sum256([]byte(strings.ToLower(plain)))
	return fingerprintMark + hex.EncodeToString(sum[:4])
}

// matchesError reports whether an error is meant: by its fingerprint, or by a
// part of its text.
func matchesError(text, want string) bool {
	if strings.HasPrefix(want, fingerprintMark) && Fingerprint(text) == want {
		return true
	}
	return strings.Contains(text, want)
}

// HeldGroup are held events whose last errors are alike. Its JSON form is
// stable.
type HeldGroup struct {
	Fingerprint string         `json:"fingerprint"` // empty for those that never failed
	Events      int            `json:"events"`
	Keys        int            `json:"keys"`
	States      map[string]int `json:"states"`
	OldestAt    time.Time      `json:"oldest_at"`        // held since
	LastAt      time.Time      `json:"last_at,omitzero"` // of the last failure
	Error       string         `json:"error"`            // one of them
	EventID     string         `json:"event_id"`         // the oldest
}

// GroupHeld sums up a group's held events by the fingerprint of their last
// error, the largest first. It reads all that the query selects.
func GroupHeld(ctx context.Context, reader store.HeldReader, group string, query HeldQuery) ([]HeldGroup, error) {
	query.Limit = 1 << 30
	held, _, err := ListHeld(ctx, reader, group, query)
	if err != nil {
		return nil, err
	}
	groups := make(map[string]*HeldGroup)
	keys := make(map[string]map[string]bool)
	for i := range held {
		h := &held[i]
		f := Fingerprint(h.LastErr)
		g := groups[f]
		if g == nil {
			g = &HeldGroup{Fingerprint: f, States: make(map[string]int), OldestAt: h.HeldAt.UTC(), EventID: h.Event.ID}
			groups[f], keys[f] = g, make(map[string]bool)
		}
		g.Events++
		g.States[string(h.State)]++
		keys[f][h.Topic+"\x00"+h.Key] = true
		g.Keys = len(keys[f])
		if h.LastErr != "" && !h.LastFailedAt.Before(g.LastAt) {
			g.LastAt, g.Error = h.LastFailedAt, h.LastErr
		}
	}
	all := make([]HeldGroup, 0, len(groups))
	for _, g := range groups {
		all = append(all, *g)
	}
	slices.SortFunc(all, func(a, b HeldGroup) int {
		return cmp.Or(cmp.Compare(b.Events, a.Events), cmp.Compare(a.Fingerprint, b.Fingerprint))
	})
	return all, nil
}
