package inbox

import (
	"strings"

	"github.com/waybillhq/waybill/store"
)

// IsBeingTried reports whether an attempt at a held event was begun and has not
// ended, or ended with its process.
func IsBeingTried(h *store.Held) bool { return strings.HasPrefix(h.LastErr, begunMark) }
