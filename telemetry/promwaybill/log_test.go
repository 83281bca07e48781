package promwaybill_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waybillhq/waybill/cdc"
	"github.com/waybillhq/waybill/relay"
	"github.com/waybillhq/waybill/telemetry/promwaybill"
)

func TestTheLogIsCountedAsItsReaderTells(t *testing.T) {
	registry := prometheus.NewRegistry()
	counts := promwaybill.NewRelay(nil)
	registry.MustRegister(counts)
	told := 0
	events := counts.Events(relay.Events{Feed: func(relay.FeedInfo) { told++ }})
	events.Feed(relay.FeedInfo{State: cdc.Streaming})
	events.Feed(relay.FeedInfo{State: cdc.LostSlot, Err: errors.New("dropped")})
	status := relay.FeedStatus{Told: 10, Streams: 1, Delay: 250 * time.Millisecond, Queued: 3}
	events.Stats(relay.Stats{Feed: &status})
	status.Told, status.Streams, status.Losses, status.CatchUps, status.Undecodable = 25, 3, 1, 2, 4
	status.Log = &cdc.Status{LagBytes: 1024, RetainedBytes: 2048, Headroom: 2 * time.Hour}
	events.Stats(relay.Stats{Feed: &status})
	events.Stats(relay.Stats{}) // a relay that only polls tells nothing

	text := scrape(t, registry)
	for _, line := range []string{
		`waybill_relay_log_state{state="LOST_SLOT"} 1`,
		`waybill_relay_log_state{state="STREAMING"} 0`,
		`waybill_relay_log_delay_seconds 0.25`,
		`waybill_relay_log_queued_ids 3`,
		`waybill_relay_log_told_total 25`,
		`waybill_relay_log_restarts_total 2`,
		`waybill_relay_log_losses_total 1`,
		`waybill_relay_log_catch_ups_total 2`,
		`waybill_relay_log_undecodable_total 4`,
		`waybill_relay_log_lag_bytes 1024`,
		`waybill_relay_log_retained_bytes 2048`,
		`waybill_relay_log_headroom_seconds 7200`,
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("no line %s", line)
		}
	}
	if told != 2 {
		t.Errorf("the next hook was told %d times, want 2", told)
	}
}
