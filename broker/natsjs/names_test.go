package natsjs_test

import (
	"strings"
	"testing"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
	"github.com/waybillhq/waybill/broker/natsjs"
)

func TestTokenIsFitForNamesAndSubjects(t *testing.T) {
	tests := []struct{ name, want string }{
		{"orders", "orders"},
		{"Orders-2", "Orders-2"},
		{"orders.created", "orders_dcreated"},
		{"orders_created", "orders__created"},
		{"orders_dcreated", "orders__dcreated"},
		{"a b*>", "a_x20b_x2a_x3e"},
		{"ü", "_xc3_xbc"},
		{"", ""},
	}
	for _, test := range tests {
		if got := natsjs.Token(test.name); got != test.want {
			t.Errorf("Token(%q) = %q, want %q", test.name, got, test.want)
		}
	}
}

// FuzzToken checks that two names have one token only when they are one name,
// and that a token is fit for a subject, a stream's name and a key.
func FuzzToken(f *testing.F) {
	f.Add("a.b", "a_b")
	f.Add("a_db", "a.b")
	f.Add(strings.Repeat("_", 200), strings.Repeat("_", 201))
	f.Fuzz(func(t *testing.T, a, b string) {
		ta, tb := natsjs.Token(a), natsjs.Token(b)
		if (ta == tb) != (a == b) {
			t.Errorf("Token(%q) = %q and Token(%q) = %q", a, ta, b, tb)
		}
		if len(ta) > 180 || strings.ContainsFunc(ta, func(r rune) bool {
			return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_')
		}) {
			t.Errorf("Token(%q) = %q is not fit", a, ta)
		}
	})
}

func TestTheLongestNamesAreUsable(t *testing.T) {
	b := open(t, startServer(t).ClientURL(), &natsjs.Config{Prefix: strings.Repeat("p", 32)})
	for _, topic := range []string{strings.Repeat("_", waybill.MaxTopicLen), strings.Repeat("t", waybill.MaxTopicLen), strings.Repeat("t", 180)} {
		ensure(t, b, broker.TopicSpec{Name: topic, Partitions: 1})
		publish(t, b, record(topic, "k", "1"))
		sub := subscribe(t, b, strings.Repeat("Ü group ", 30), topic)
		got := poll(t, sub, 1)
		if err := sub.Commit(t.Context(), []broker.Position{{Partition: broker.Partition{Topic: topic}, Settled: got[0].Position}}); err != nil {
			t.Error(err)
		}
	}
}
