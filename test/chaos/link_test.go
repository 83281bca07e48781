package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"

	"github.com/waybillhq/waybill/test/lab"
)

// A link is what one process has to the database, or to the broker: a proxy for
// each server that may answer.
type link struct {
	name    string
	proxies []*toxiproxy.Proxy
	taken   atomic.Bool
}

// What the proxies do is told by the plan.
func init() { zerolog.SetGlobalLevel(zerolog.Disabled) }

var proxies = toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())

func newLink(t *testing.T, name string, servers ...*lab.Server) *link {
	t.Helper()
	l := &link{name: name}
	for _, s := range servers {
		// It listens for as long as it is there: any port will do, and none can be
		// taken between a look and its use.
		p := toxiproxy.NewProxy(proxies, name, "127.0.0.1:0", s.Address())
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Stop)
		l.proxies = append(l.proxies, p)
	}
	return l
}

// take reports whether the link is fit for another fault.
func (l *link) take() bool { return l.taken.CompareAndSwap(false, true) }

func (l *link) leave() { l.taken.Store(false) }

// addresses are where the process finds its servers, host:port.
func (l *link) addresses() (all []string) {
	for _, p := range l.proxies {
		all = append(all, p.Listen)
	}
	return all
}

// A fault is what can be wrong with a link. What is on its way when a fault ends
// is lost with the connection, unless it was only slow.
type fault struct {
	name, toxic, stream string
	attributes          map[string]int
}

// mute lets requests arrive and loses their answers: of a COMMIT, too.
var mute = fault{"mute", "timeout", "downstream", map[string]int{"timeout": 700}}

var faults = []fault{
	{"slow", "latency", "downstream", map[string]int{"latency": 150, "jitter": 150}},
	{"slow to ask", "latency", "upstream", map[string]int{"latency": 100, "jitter": 100}},
	{"narrow", "bandwidth", "downstream", map[string]int{"rate": 16}}, // KB/s
	{"reset", "reset_peer", "downstream", map[string]int{"timeout": 0}},
	{"reset before asking", "reset_peer", "upstream", map[string]int{"timeout": 20}},
	mute,
	{"deaf", "timeout", "upstream", map[string]int{"timeout": 700}},
	{"silent", "timeout", "downstream", map[string]int{"timeout": 0}}, // and nobody hangs up
	{"cut in an answer", "limit_data", "downstream", map[string]int{"bytes": 700}},
}

// begin lets a fault begin.
func (l *link) begin(f fault) error {
	text, err := json.Marshal(map[string]any{"name": f.toxic, "type": f.toxic, "stream": f.stream, "attributes": f.attributes})
	if err != nil {
		return err
	}
	for _, p := range l.proxies {
		if _, err := p.Toxics.AddToxicJson(strings.NewReader(string(text))); err != nil {
			return fmt.Errorf("link %s: %s: %w", l.name, f.name, err)
		}
	}
	return nil
}

// mend ends every fault.
func (l *link) mend() {
	for _, p := range l.proxies {
		p.Toxics.ResetToxics(context.Background())
	}
}
