package inbox

import (
	"sync"

	"github.com/waybillhq/waybill"
)

// versions remembers the highest version of the aggregates seen lately, to
// count what comes out of order. It decides nothing.
type versions struct {
	mu   sync.Mutex
	seen map[aggregate]int64
}

type aggregate struct{ tenant, kind, id string }

// maxVersions bounds the memory; when it is reached all is forgotten.
const maxVersions = 20_000

func newVersions() *versions { return &versions{seen: make(map[aggregate]int64)} }

// note returns the aggregate's highest version so far when this one is lower.
func (v *versions) note(e *waybill.Event) (seen int64, late bool) {
	if e.AggregateVersion == 0 {
		return 0, false
	}
	a := aggregate{e.TenantID, e.AggregateType, e.AggregateID}
	v.mu.Lock()
	defer v.mu.Unlock()
	seen, known := v.seen[a]
	if known && e.AggregateVersion < seen {
		return seen, true
	}
	if !known && len(v.seen) >= maxVersions {
		clear(v.seen)
	}
	v.seen[a] = e.AggregateVersion
	return seen, false
}
