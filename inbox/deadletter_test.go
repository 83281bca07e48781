package inbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
	"github.com/waybillhq/waybill/broker/membroker"
	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/memstore"
)

const letterTopicName = topic + DeadLetterSuffix

// lettered is a configuration whose first failure is final, with dead letters.
func (r *rig) lettered(p broker.Publisher) *Config {
	config := r.config()
	config.Schedule, config.PauseAfter = []time.Duration{}, -1
	config.DeadLetters = p
	config.Events.DeadLettered = func(i DeadLetterInfo) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.now = append(r.now, i.String())
	}
	return config
}

func (r *rig) letters() []waybill.Record { return r.b.Records(letterTopicName) }

func (r *rig) makeLetterTopic() {
	r.t.Helper()
	if err := r.b.EnsureTopics(context.Background(), []broker.TopicSpec{{Name: letterTopicName, Partitions: 2}}); err != nil {
		r.t.Fatal(err)
	}
}

func refuseAll(context.Context, *memstore.Tx, waybill.Event) error { return errBoom }

func headersOf(r *waybill.Record) map[string]string {
	all := make(map[string]string)
	for _, h := range r.Headers {
		all[h.Key] = string(h.Value)
	}
	return all
}

func TestDeadLetterIsTheRecordWithItsFailure(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.makeLetterTopic()
		r.publish(ev("a", 1))
		sent := r.b.Records(topic)[0]
		r.start(func(context.Context, *memstore.Tx, waybill.Event) error { panic("boom") }, r.lettered(r.b.Connect()))
		r.until("a letter", func() bool { return len(r.letters()) == 1 })
		letter := r.letters()[0]
		if letter.Key != sent.Key || !bytes.Equal(letter.Value, sent.Value) || letter.EventID != "a/1" {
			t.Errorf("letter %+v, want the bytes of %+v", letter, sent)
		}
		got := headersOf(&letter)
		for name, value := range headersOf(&sent) {
			if got[name] != value {
				t.Errorf("header %s: got %q, want %q", name, got[name], value)
			}
		}
		for name, part := range map[string]string{
			letterGroup: "g", letterTopic: topic, letterPartition: "", letterPosition: "", letterEventID: "a/1", letterEventType: "OrderChanged",
			letterAttempts: "1", letterError: "boom", letterFirstError: "boom", letterStack: "goroutine",
			letterFirstFailedAt: "T", letterLastFailedAt: "T",
		} {
			if value, ok := got[name]; !ok || !strings.Contains(value, part) {
				t.Errorf("header %s: got %q, want it with %q", name, value, part)
			}
		}
		if decoded, err := waybill.Decode(&letter); err != nil || decoded.ID != "a/1" {
			t.Errorf("decoded: %+v, %v", decoded, err)
		}
		r.until("noted", func() bool { return !r.heldRows()[0].DeadLetterAt.IsZero() })
		r.after(time.Hour)
		if n := len(r.letters()); n != 1 {
			t.Errorf("%d letters, want one", n)
		}
	})
}

// Each death has its letter, and none carries the marks of those before it:
// neither after retries, nor when a letter is sent to the topic again.
func TestFiftyDeathsLeaveHeadersOfOneSize(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.makeLetterTopic()
		r.publish(ev("a", 1))
		r.start(refuseAll, r.lettered(r.b.Connect()))
		size := func(n int) (bytes int) {
			r.until(fmt.Sprintf("letter %d", n), func() bool { return len(r.letters()) == n })
			for _, h := range r.letters()[n-1].Headers {
				bytes += len(h.Key) + len(h.Value)
				if strings.HasSuffix(h.Key, "-failed-at") {
					bytes -= len(h.Value) // the fraction of a second has no fixed length
				}
			}
			return bytes
		}
		first := size(1)
		for n := 2; n <= 50; n++ {
			r.retryAll()
			if got := size(n); got != first {
				t.Fatalf("headers of letter %d have %d bytes, those of the first %d", n, got, first)
			}
		}
		// Another group gets the last letter from the topic, and lets it die too.
		again := r.letters()[49]
		again.Topic = topic
		r.publishRecords(again)
		config := r.lettered(r.b.Connect())
		config.Group = "h"
		r.start(refuseAll, config)
		if got := size(51); got != first {
			t.Errorf("headers of a letter of a letter have %d bytes, want %d", got, first)
		}
	})
}

func (r *rig) retryAll() {
	r.t.Helper()
	for _, h := range r.heldRows() {
		ctx := context.Background()
		tx, err := r.st.BeginInbox(ctx)
		if err != nil {
			r.t.Fatal(err)
		}
		h.State, h.Attempts, h.RetryIn = store.HeldRetry, 0, 0
		if _, err := tx.UpdateHeld(ctx, h); err != nil {
			r.t.Fatal(err)
		}
		if err := tx.Commit(ctx); err != nil {
			r.t.Fatal(err)
		}
	}
}

func TestDeadLetterIsSentUntilItIsConfirmed(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.makeLetterTopic()
		r.publish(ev("a", 1))
		down := true
		r.b.SetFault(func(_ context.Context, record waybill.Record) membroker.Verdict {
			if record.Topic == letterTopicName && down {
				return membroker.Verdict{Err: broker.Unavailable(broker.ScopeBroker, errBoom, "")}
			}
			return membroker.Verdict{}
		})
		run := r.start(refuseAll, r.lettered(r.b.Connect()))
		r.until("trouble", func() bool { return r.said("dead letter of a/1 not sent") > 3 })
		run.mustStop()
		if r.said("dead letter of a/1 not sent") > 10 {
			t.Errorf("tried %d times within seconds", r.said("dead letter of a/1 not sent"))
		}
		down = false
		r.start(refuseAll, r.lettered(r.b.Connect())) // the next process finds it unsent
		r.until("a letter", func() bool { return len(r.letters()) == 1 })
	})
}

// A publisher alone cannot make topics.
type onlyPublisher struct{ broker.Publisher }

func TestMissingTopicOfDeadLetters(t *testing.T) {
	t.Run("is made where that is possible", func(t *testing.T) {
		bubble(t, func(t *testing.T, r *rig) {
			r.publish(ev("a", 1))
			r.start(refuseAll, r.lettered(r.b.Connect()))
			r.until("a letter", func() bool { return len(r.letters()) == 1 })
			if log := r.log.String(); strings.Contains(log, "in trouble") {
				t.Errorf("the first letter of a topic is no trouble:\n%s", log)
			}
		})
	})
	t.Run("leaves the held event, without a hurry", func(t *testing.T) {
		bubble(t, func(t *testing.T, r *rig) {
			r.publish(ev("a", 1), ev("b", 1))
			run := r.start(refuseAll, r.lettered(onlyPublisher{r.b.Connect()}))
			r.after(time.Hour)
			if n := r.said("dead letter of a/1 not sent"); n < 10 || n > 200 {
				t.Errorf("tried %d times in an hour", n)
			}
			if len(r.heldRows()) != 2 {
				t.Errorf("held: %v", r.held())
			}
			r.makeLetterTopic()
			r.until("both letters", func() bool { return len(r.letters()) == 2 })
			run.mustStop()
			r.wantSettled()
		})
	})
}

// More letters than one call takes cannot be sent, for their topic is missing.
func TestLettersOfOneTopicDoNotKeepBackThoseOfAnother(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		const other = "other"
		for _, spec := range []broker.TopicSpec{{Name: other, Partitions: 1}, {Name: other + DeadLetterSuffix, Partitions: 1}} {
			if err := r.b.EnsureTopics(t.Context(), []broker.TopicSpec{spec}); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 2*letterBatch + 10 {
			r.publish(ev(fmt.Sprintf("k%03d", i), 1))
		}
		config := r.lettered(onlyPublisher{r.b.Connect()})
		config.Topics, config.PauseAfter = []string{topic, other}, -1
		r.start(refuseAll, config)
		r.until("all are held", func() bool { return len(r.held()) == 2*letterBatch+10 })
		last := ev("z", 1)
		last.Topic = other
		r.publish(last)
		r.until("the letter of the other topic", func() bool { return len(r.b.Records(other+DeadLetterSuffix)) == 1 })
		if n := len(r.letters()); n > 0 {
			t.Errorf("%d letters in a topic that is missing", n)
		}
	})
}

// The record is as large as the broker takes, and a letter has headers beside it.
func TestLetterThatIsTooLarge(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.makeLetterTopic()
		small, large := ev("a", 1), ev("b", 1)
		large.Data = []byte(`"` + strings.Repeat("x", 10_000) + `"`)
		r.publish(small, large)
		record := r.b.Records(topic)
		r.b.MaxRecordBytes(largest(record) + 100)
		run := r.start(refuseAll, r.lettered(r.b.Connect()))
		r.until("given up", func() bool { return r.said("dead letter of b/1 given up") == 1 })
		r.until("the other letter", func() bool { return len(r.letters()) == 1 })
		r.after(time.Hour)
		if r.said("dead letter of b/1") != 1 {
			t.Errorf("tried %d times", r.said("dead letter of b/1"))
		}
		notes := map[string]bool{}
		for _, h := range r.heldRows() {
			notes[h.Event.ID] = h.DeadLetterNote != ""
		}
		if want := map[string]bool{"a/1": false, "b/1": true}; !maps.Equal(notes, want) {
			t.Errorf("notes: %v, want %v", notes, want)
		}
		if !strings.Contains(r.log.String(), "a dead letter cannot be sent") {
			t.Error("the log does not tell")
		}
		run.mustStop()
		r.wantSettled()
	})
}

func largest(records []waybill.Record) (most int) {
	for i := range records {
		size := len(records[i].Key) + len(records[i].Value)
		for _, h := range records[i].Headers {
			size += len(h.Key) + len(h.Value)
		}
		most = max(most, size)
	}
	return most
}

// A topic of dead letters has no dead letters: they would go round for ever.
func TestDeadLettersHaveNoDeadLetters(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.makeLetterTopic()
		e := ev("a", 1)
		e.Topic = letterTopicName
		r.publish(e)
		config := r.lettered(r.b.Connect())
		config.Topics = []string{letterTopicName}
		r.start(refuseAll, config)
		r.until("given up", func() bool { return r.said("dead letter of a/1 given up") == 1 })
		r.after(time.Hour)
		if n := len(r.letters()); n != 1 {
			t.Errorf("%d records in the topic, want the one that was sent", n)
		}
	})
}

// Neither a tombstone nor an empty value stops the stream or is sent in circles.
func TestEmptyRecordsAreHandled(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.makeLetterTopic()
		raw := func(id string, value []byte) waybill.Record {
			return waybill.Record{EventID: id, Topic: topic, Key: "k", Value: value, Headers: []waybill.Header{
				{Key: "id", Value: []byte(id)}, {Key: "eventType", Value: []byte("OrderDeleted")},
			}}
		}
		r.publishRecords(
			waybill.Record{Topic: topic, Key: "tombstone"},
			waybill.Record{Topic: topic, Key: "empty", Value: []byte{}},
			raw("null", nil), raw("nothing", []byte{}),
		)
		var seen []string
		run := r.start(func(_ context.Context, _ *memstore.Tx, e waybill.Event) error {
			if len(e.Data) > 0 {
				return errors.New("data out of nothing")
			}
			seen = append(seen, e.ID)
			return nil
		}, r.lettered(r.b.Connect()))
		r.until("two letters and two applied", func() bool { return len(r.letters()) == 2 && len(seen) == 2 })
		for _, h := range r.heldRows() {
			if h.State != store.HeldDead || len(h.Record.Value) != 0 {
				t.Errorf("held %+v, want it DEAD and empty", h)
			}
		}
		r.after(time.Hour)
		if n := len(r.letters()); n != 2 {
			t.Errorf("%d letters, want 2", n)
		}
		run.mustStop()
		r.wantSettled()
	})
}
