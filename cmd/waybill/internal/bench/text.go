package bench

import (
	"fmt"
	"strings"
)

func heading(b *strings.Builder, what string, h *Host, v *Versions) {
	fmt.Fprintf(b, "%s on %s and %s\n", what, v.Store, v.Broker)
	fmt.Fprintf(b, "waybill %s, %s; %s, %d cores of %s, %.0f GB, load %.1f before and %.1f after\n",
		v.Waybill, v.Go, h.System, h.Cores, orNone(h.Processor), h.MemoryGB, h.Load, h.LoadEnd)
}

func line(b *strings.Builder, name, format string, args ...any) {
	fmt.Fprintf(b, "%-22s "+format+"\n", append([]any{name}, args...)...)
}

func limits(b *strings.Builder, l *Limits) {
	if l.ProduceEventsPerS > 0 {
		line(b, "plain produce", "%10s", perSecond(l.ProduceEventsPerS))
	}
	if l.ReadEventsPerS > 0 {
		line(b, "plain ordered read", "%10s", perSecond(l.ReadEventsPerS))
	}
}
