package inbox

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
	"github.com/waybillhq/waybill/store"
)

// item is one record on its way through the processor.
type item struct {
	delivery  broker.Delivery
	partition broker.Partition
	event     waybill.Event
	key       store.HeldKeyRef
	// fail is the verdict on an event whose handler must not run (again) for now.
	fail *failure
	// broken says that fail comes from decoding.
	broken bool
	// known says that it is consumed for certain.
	known bool
	// deaths counts the transactions that died under the event alone.
	deaths int
	// marked says that this process has committed the crash mark for it.
	marked bool
	// solo wants a transaction of its own: one died, perhaps by this event.
	solo bool
	// run is how far its effects are; nil where none was looked at.
	run *effectRun
	// noCall says that it needs no call for now: it will not be handled.
	noCall bool
	// isConsumed says that its group has consumed it.
	isConsumed bool
	// behind says that it is because the event waits behind another.
	behind bool
	// trials counts the failures while the processor was paused.
	trials int
}

func newItem(d broker.Delivery) *item {
	it := &item{delivery: d, partition: broker.Partition{Topic: d.Record.Topic, ID: d.Partition}}
	event, err := waybill.Decode(&d.Record)
	if err != nil {
		event = waybill.Event{ID: placeID(it.partition, d.Position), Topic: d.Record.Topic, Key: d.Record.Key}
		it.fail = &failure{err: err, final: true}
		it.broken = true
	}
	it.event = event
	it.key = store.HeldKeyRef{Topic: d.Record.Topic, Key: orderKey(&event)}
	return it
}

// placeID is the id of a record that shows none.
func placeID(p broker.Partition, position int64) string {
	id := fmt.Sprintf("undecodable:%s/%d/%d", p.Topic, p.ID, position)
	if len(id) > waybill.MaxIDLen {
		return "undecodable:" + hash(id)
	}
	return id
}

// orderKey is the key by which an event keeps its place among others. An event
// without one has no place to keep, and is a key of its own.
func orderKey(e *waybill.Event) string {
	key := e.EffectiveKey()
	switch {
	case key == "":
		return e.ID
	case !fits(key, waybill.MaxKeyLen):
		return "sha256:" + hash(key)
	}
	return key
}

func fits(text string, limit int) bool {
	return len(text) <= limit && utf8.ValidString(text) && !strings.ContainsRune(text, 0)
}

func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// clip shortens a text to limit bytes, and to what a database takes as text.
func clip(text string, limit int) string {
	if len(text) > limit {
		text = text[:limit]
	}
	return strings.ReplaceAll(strings.ToValidUTF8(text, "?"), "\x00", "?")
}

// consumed is the item's row in consumed_event.
func (it *item) consumed(group string, outcome store.Outcome) store.Consumed {
	return store.Consumed{
		Group: group, Event: it.event, Outcome: outcome,
		Topic: it.partition.Topic, Partition: it.partition.ID, Position: it.delivery.Position,
	}
}

// held is the item's row in held_event, but for its state.
func (it *item) held(group string) store.Held {
	return store.Held{
		Group: group, Topic: it.key.Topic, Key: it.key.Key,
		Partition: it.partition.ID, Position: it.delivery.Position,
		Event: it.event, Record: it.delivery.Record,
	}
}
