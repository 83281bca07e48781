package brokertest

import (
	"slices"
	"strings"
	"testing"

	"github.com/waybillhq/waybill/broker"
)

func (s *suite) topics(t *testing.T) {
	t.Run("TheyAreMadeOnce", s.topicsAreMadeOnce)
	t.Run("AnotherNumberOfPartitionsIsRefused", s.anotherNumberOfPartitionsIsRefused)
	t.Run("NamesThatLookAlikeAreTwoTopics", s.namesThatLookAlikeAreTwoTopics)
	t.Run("IllegalNamesAreRefused", s.illegalNamesAreRefused)
	t.Run("CheckNamesWhatIsMissing", s.checkNamesWhatIsMissing)
	t.Run("RetentionIsKnown", s.retentionIsKnown)
}

func (s *suite) topicsAreMadeOnce(t *testing.T) {
	c := s.open(t)
	topic := s.topic(t, c, 3)
	publish(t, c.Publisher, records(topic, 5)...)
	for _, partitions := range []int{0, 3} {
		if err := c.Admin.EnsureTopics(t.Context(), []broker.TopicSpec{{Name: topic, Partitions: partitions}}); err != nil {
			t.Errorf("ensure again with %d partitions: %v", partitions, err)
		}
	}
	read(t, subscribe(t, c, groupName(), topic), 5)
}

func (s *suite) anotherNumberOfPartitionsIsRefused(t *testing.T) {
	c := s.open(t)
	topic, other := s.topic(t, c, 3), topicName()
	err := c.Admin.EnsureTopics(t.Context(), []broker.TopicSpec{{Name: topic, Partitions: 4}, {Name: other, Partitions: 2}})
	if err == nil || !strings.Contains(err.Error(), topic) {
		t.Errorf("got error %v, want one that names %s", err, topic)
	}
	publish(t, c.Publisher, records(other, 1)...) // the other one was made all the same
	publish(t, c.Publisher, records(topic, 1)...)
}

func (s *suite) namesThatLookAlikeAreTwoTopics(t *testing.T) {
	c := s.open(t)
	stem := topicName()
	names := []string{stem + ".a", stem + "_a", stem + "-a", stem + ".A", stem + "_2Ea", stem + ".a.b", stem + "..a", "." + stem}
	if s.DotIsUnderscore {
		names = slices.Delete(names, 1, 2)
		defer func() {
			if err := c.Admin.EnsureTopics(t.Context(), []broker.TopicSpec{{Name: stem + "_a", Partitions: 1}}); err == nil {
				t.Errorf("topic %s was made beside %s", stem+"_a", stem+".a")
			}
		}()
	}
	for _, name := range names {
		if err := c.Admin.EnsureTopics(t.Context(), []broker.TopicSpec{{Name: name, Partitions: 1}}); err != nil {
			t.Fatalf("create %s: %v", name, err)
		}
		publish(t, c.Publisher, record(name, "k", name))
	}
	sub := subscribe(t, c, groupName(), names...)
	all := read(t, sub, len(names))
	wantIDs(t, all, names...)
	for _, d := range all {
		if d.Record.Topic != d.Record.EventID {
			t.Errorf("a record of %s came from %s", d.Record.EventID, d.Record.Topic)
		}
	}
	readNothing(t, sub)
}

func (s *suite) illegalNamesAreRefused(t *testing.T) {
	c := s.open(t)
	for _, name := range []string{"", ".", "..", "a b", "a*", "a>", "ü"} {
		if err := c.Admin.EnsureTopics(t.Context(), []broker.TopicSpec{{Name: name}}); err == nil {
			t.Errorf("topic %q was made", name)
		}
	}
}

func (s *suite) checkNamesWhatIsMissing(t *testing.T) {
	c := s.open(t)
	if c.Checker == nil {
		t.Skip("the adapter has no checks")
	}
	topic, missing := s.topic(t, c, 2), topicName()
	for _, check := range c.Checker.Check(t.Context(), []string{topic}) {
		if check.Name == "" || check.Detail == "" {
			t.Errorf("check %+v lacks a name or a detail", check)
		}
		if !check.OK && check.Hint == "" {
			t.Errorf("check %+v does not say what to do", check)
		}
	}
	found := false
	for _, check := range c.Checker.Check(t.Context(), []string{topic, missing}) {
		found = found || !check.OK && strings.Contains(check.Name+check.Detail, missing)
	}
	if !found {
		t.Errorf("no check names the missing topic %s", missing)
	}
}

func (s *suite) retentionIsKnown(t *testing.T) {
	c := s.open(t)
	teller, ok := c.Admin.(broker.RetentionTeller)
	if !ok {
		t.Skip("this broker does not tell how long it keeps records")
	}
	topic := s.topic(t, c, 1)
	kept, err := teller.TopicRetention(t.Context(), []string{topic})
	if days, found := kept[topic]; err != nil || !found || len(kept) != 1 || days < 0 {
		t.Errorf("retention: got %v, %v, want that of %s", kept, err, topic)
	}
	if kept, err := teller.TopicRetention(t.Context(), []string{topic, topicName()}); err == nil {
		t.Errorf("retention of a topic that does not exist: got %v", kept)
	}
}
