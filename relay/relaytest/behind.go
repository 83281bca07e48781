package relaytest

import (
	"context"
	"fmt"
	"maps"
	"testing"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
)

// Topics are those that the suite publishes to.
var Topics = []string{topic, "refunds", "later"}

// Behind is a real broker behind the suite's own. The latter plans the faults
// and decides what gets through; that is published to the real one within the
// same call, whose answer counts.
type Behind struct {
	Publisher broker.Publisher
	// Records returns n records of a topic, or, after a while, those that there
	// are. Those of a key come in the order in which they were stored.
	Records func(t *testing.T, topic string, n int) []waybill.Record
}

// through publishes to both.
type through struct {
	broker.Publisher
	real broker.Publisher
}

// connect returns what a relay publishes to.
func (e *env[TX]) connect() broker.Publisher {
	if e.behind == nil {
		return e.broker.Connect()
	}
	return &through{Publisher: e.broker.Connect(), real: e.behind.Publisher}
}

// Publish implements broker.Publisher. A record that the suite's broker has
// stored has a place, also where its answer is planned to be lost: the real one
// gets it though the caller may have given up.
func (p *through) Publish(ctx context.Context, records []waybill.Record) []error {
	for i := range records {
		records[i].Place = ""
	}
	errs := p.Publisher.Publish(ctx, records)
	var stored []waybill.Record
	var at []int
	for i := range records {
		if records[i].Place != "" {
			stored, at = append(stored, records[i]), append(at, i)
		}
	}
	if len(stored) == 0 {
		return errs
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	for i, err := range p.real.Publish(ctx, stored) {
		if err != nil {
			errs[at[i]] = err
		}
	}
	return errs
}

// records returns what a topic holds: of the real broker where there is one,
// which must hold what the suite's broker let through, and no more.
func (e *env[TX]) records(name string) []waybill.Record {
	e.t.Helper()
	planned := e.broker.Records(name)
	if e.behind == nil || len(planned) == 0 {
		return planned
	}
	stored := e.behind.Records(e.t, name, len(planned))
	if want, got := counted(planned), counted(stored); !maps.Equal(want, got) {
		e.t.Errorf("topic %s of the real broker holds %v, want %v", name, got, want)
	}
	return stored
}

func counted(records []waybill.Record) map[string]int {
	n := make(map[string]int)
	for i := range records {
		n[fmt.Sprintf("%s of %s: %s", records[i].EventID, records[i].Key, records[i].Value)]++
	}
	return n
}
