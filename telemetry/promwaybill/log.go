package promwaybill

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/waybillhq/waybill/cdc"
	"github.com/waybillhq/waybill/relay"
)

// logStates are all that a relay can be in; one of them is 1.
var logStates = []cdc.State{
	cdc.Off, cdc.Standby, cdc.Opening, cdc.CatchingUp, cdc.Streaming, cdc.Waiting,
	cdc.LostSlot, cdc.WALRemoved, cdc.BinlogPurged, cdc.PositionUnknown,
	cdc.Misconfigured, cdc.Blocked, cdc.ServerIDConflict, cdc.Unreachable,
}

// logMetrics are those of the database's own log.
type logMetrics struct {
	state                   *prometheus.GaugeVec
	delay, queued           *prometheus.GaugeVec
	lag, retained, headroom *prometheus.GaugeVec

	told, restarts, catchUps, losses, truncates, undecodable, unseen counted
}

// counted is a counter of something that is told as a sum.
type counted struct {
	*prometheus.CounterVec
	sum uint64
}

func (c *counted) to(sum uint64) {
	if sum > c.sum {
		c.WithLabelValues().Add(float64(sum - c.sum))
		c.sum = sum
	}
}

func newLogMetrics(i *instruments) *logMetrics {
	counter := func(name, help string) counted {
		c := counted{CounterVec: i.counter(name, help)}
		c.WithLabelValues()
		return c
	}
	return &logMetrics{
		state:       i.gauge("log_state", "1 for the state of the feed from the database's own log.", "state"),
		delay:       i.gauge("log_delay_seconds", "How long the log takes to show what was committed."),
		queued:      i.gauge("log_queued_ids", "Ids that the log told and that are not loaded yet."),
		lag:         i.gauge("log_lag_bytes", "The log between what was read and its end. -1: not known."),
		retained:    i.gauge("log_retained_bytes", "What the database keeps of its log for the reader. -1: not known."),
		headroom:    i.gauge("log_headroom_seconds", "How long a reader may stay away until its position is lost. -1: not known."),
		told:        counter("log_told_total", "Ids that the log told."),
		restarts:    counter("log_restarts_total", "Streams that were opened after the first."),
		catchUps:    counter("log_catch_ups_total", "How often the queue was read again because the log told more than could be kept, or left something open."),
		losses:      counter("log_losses_total", "Positions that were lost: a slot dropped, a log removed."),
		truncates:   counter("log_truncates_total", "TRUNCATEs of the outbox that the log told."),
		undecodable: counter("log_undecodable_total", "Events whose ids could not be read from the log."),
		unseen:      counter("log_unseen_total", "Ids that were told and did not become visible within a minute."),
	}
}

func (m *logMetrics) changed(i *relay.FeedInfo) {
	for _, state := range logStates {
		m.state.WithLabelValues(string(state)).Set(0)
	}
	m.state.WithLabelValues(string(i.State)).Set(1)
}

func (m *logMetrics) picture(s *relay.FeedStatus) {
	m.delay.WithLabelValues().Set(s.Delay.Seconds())
	m.queued.WithLabelValues().Set(float64(s.Queued))
	m.told.to(s.Told)
	m.restarts.to(max(s.Streams, 1) - 1)
	m.catchUps.to(s.CatchUps)
	m.losses.to(s.Losses)
	m.truncates.to(s.Truncates)
	m.undecodable.to(s.Undecodable)
	m.unseen.to(s.Unseen)
	if s.Log == nil {
		return
	}
	m.lag.WithLabelValues().Set(float64(s.Log.LagBytes))
	m.retained.WithLabelValues().Set(float64(s.Log.RetainedBytes))
	m.headroom.WithLabelValues().Set(max(s.Log.Headroom.Seconds(), -1))
}
