package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
	"github.com/waybillhq/waybill/broker/kafka"
)

func numbered(topic string, n int) []waybill.Record {
	var out []waybill.Record
	for i := range n {
		out = append(out, record(topic, fmt.Sprintf("key-%d", i), fmt.Sprintf("event-%d", i)))
	}
	return out
}

// A member that handles records for longer than the others wait loses its
// partitions, and must not commit what another one may have.
func TestCommitAfterALostSessionFails(t *testing.T) {
	eachServer(t, func(t *testing.T, brokers []string) {
		config := &kafka.Config{Brokers: brokers, RebalanceTimeout: time.Second, SessionTimeout: 6 * time.Second}
		slow, quick := open(t, config), open(t, config)
		topic, group := newTopic(t, slow, 1), "group-"+waybill.NewID()
		publishAll(t, slow, numbered(topic, 10)...)
		one := subscribe(t, slow, group, topic)
		batch := poll(t, one)
		position := broker.Position{Partition: broker.Partition{Topic: topic}, Settled: batch[len(batch)-1].Position}
		two := subscribe(t, quick, group, topic)
		again := poll(t, two) // which needs the first one's session to be lost
		if len(again) == 0 || again[0].Position != 0 {
			t.Errorf("the other member begins with %v", again)
		}
		if err := one.Commit(t.Context(), []broker.Position{position}); err == nil {
			t.Error("a member whose session was lost could commit")
		}
		if err := two.Commit(t.Context(), []broker.Position{{Partition: position.Partition, Settled: again[0].Position}}); err != nil {
			t.Errorf("commit of the partition's owner: %v", err)
		}
	})
}

// Between two calls of Poll no partition moves, however long they are apart
// within the time for a rebalance.
func TestPartitionsStayWhileRecordsAreHandled(t *testing.T) {
	eachServer(t, func(t *testing.T, brokers []string) {
		config := &kafka.Config{Brokers: brokers, SessionTimeout: 6 * time.Second}
		b, c := open(t, config), open(t, config)
		topic, group := newTopic(t, b, 2), "group-"+waybill.NewID()
		publishAll(t, b, numbered(topic, 20)...)
		one := subscribe(t, b, group, topic)
		var all []broker.Delivery
		for len(all) < 20 {
			all = append(all, poll(t, one)...)
		}
		two := subscribe(t, c, group, topic)
		if early, err := two.Poll(t.Context(), 100, 2*time.Second); err != nil || len(early) > 0 {
			t.Errorf("the second member got %d records, error %v, while the first one handles them", len(early), err)
		}
		var positions []broker.Position
		for _, d := range all {
			positions = append(positions, broker.Position{Partition: broker.Partition{Topic: topic, ID: d.Partition}, Settled: d.Position})
		}
		if err := one.Commit(t.Context(), positions); err != nil {
			t.Fatalf("commit: %v", err)
		}
		publishAll(t, b, numbered(topic, 20)...)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		for got := 0; got == 0; { // now that the first one polls, partitions move
			if _, err := one.Poll(ctx, 100, 50*time.Millisecond); err != nil {
				t.Fatal(err)
			}
			batch, err := two.Poll(ctx, 100, 50*time.Millisecond)
			if err != nil {
				t.Fatal(err)
			}
			got += len(batch)
		}
	})
}

func TestAPositionThatDoesNotExistIsReadFromTheOldestRecord(t *testing.T) {
	eachServer(t, func(t *testing.T, brokers []string) {
		for _, test := range []struct {
			name      string
			committed int64 // by somebody else
			deleted   int64 // records below are gone
			got       int64
			records   int
		}{
			{"behind the end", 1000, 0, 0, 10},
			{"before the beginning", 2, 5, 5, 5},
		} {
			t.Run(test.name, func(t *testing.T) {
				resets := make(chan kafka.PositionResetInfo, 10)
				b := open(t, &kafka.Config{Brokers: brokers, Events: kafka.Events{PositionReset: func(info kafka.PositionResetInfo) { resets <- info }}})
				topic, group := newTopic(t, b, 1), "group-"+waybill.NewID()
				publishAll(t, b, numbered(topic, 10)...)
				admin(t, brokers, func(ctx context.Context, a *kadm.Client) error {
					var offsets kadm.Offsets
					offsets.Add(kadm.Offset{Topic: topic, At: test.committed, LeaderEpoch: -1})
					responses, err := a.CommitOffsets(ctx, group, offsets)
					err = errors.Join(err, responses.Error())
					if test.deleted > 0 {
						var before kadm.Offsets
						before.Add(kadm.Offset{Topic: topic, At: test.deleted})
						_, deletion := a.DeleteRecords(ctx, before)
						err = errors.Join(err, deletion)
					}
					return err
				})
				sub := subscribe(t, b, group, topic)
				var positions []int64
				for len(positions) < test.records {
					for _, d := range poll(t, sub) {
						positions = append(positions, d.Position)
					}
				}
				if want := test.got; positions[0] != want || !slices.IsSorted(positions) {
					t.Errorf("got positions %v, want them from %d on", positions, want)
				}
				select {
				case info := <-resets:
					if info.Wanted != test.committed || info.Got != test.got || info.Group != group || info.Topic != topic {
						t.Errorf("got %+v", info)
					}
				default:
					t.Error("the reset was not told")
				}
				// What was read can be committed, though it lies before the old position.
				last := broker.Position{Partition: broker.Partition{Topic: topic}, Settled: positions[len(positions)-1]}
				if err := sub.Commit(t.Context(), []broker.Position{last}); err != nil {
					t.Fatal(err)
				}
				if err := sub.Close(); err != nil {
					t.Fatal(err)
				}
				publishAll(t, b, record(topic, "k", "next"))
				if got := poll(t, subscribe(t, b, group, topic)); got[0].Record.EventID != "next" {
					t.Errorf("after a commit reading goes on with %s, want next", got[0].Record.EventID)
				}
			})
		}
	})
}

func TestARecordWithoutValueIsReadAsNil(t *testing.T) {
	eachServer(t, func(t *testing.T, brokers []string) {
		b := open(t, &kafka.Config{Brokers: brokers})
		topic := newTopic(t, b, 1)
		deletion, empty := record(topic, "a", "deletion"), record(topic, "a", "empty")
		deletion.Value, empty.Value = nil, []byte{}
		publishAll(t, b, deletion, empty)
		got := readAll(t, b, topic, 2)
		if got[0].Record.Value != nil || got[1].Record.Value == nil || len(got[1].Record.Value) != 0 {
			t.Errorf("got values %#v and %#v, want nil and empty", got[0].Record.Value, got[1].Record.Value)
		}
	})
}

func TestALowerCommitDoesNotGoBack(t *testing.T) {
	_, brokers := startFake(t)
	b := open(t, &kafka.Config{Brokers: brokers})
	topic, group := newTopic(t, b, 1), "group-"+waybill.NewID()
	publishAll(t, b, numbered(topic, 5)...)
	sub := subscribe(t, b, group, topic)
	for n := 0; n < 5; {
		n += len(poll(t, sub))
	}
	for _, settled := range []int64{3, 1} {
		if err := sub.Commit(t.Context(), []broker.Position{{Partition: broker.Partition{Topic: topic}, Settled: settled}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := sub.Close(); err != nil {
		t.Fatal(err)
	}
	if got := poll(t, subscribe(t, b, group, topic))[0].Position; got != 4 {
		t.Errorf("reading goes on with position %d, want 4", got)
	}
}
