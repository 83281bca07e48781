package promwaybill_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waybillhq/waybill/store/memstore"
	"github.com/waybillhq/waybill/telemetry/promwaybill"
)

var update = flag.Bool("update", false, "write docs/metrics.md again")

var described = regexp.MustCompile(`fqName: "([^"]+)", help: "((?:[^"\\]|\\.)*)".*constLabels: \{([^}]*)\}, variableLabels: \{([^}]*)\}`)

func TestMetricsReference(t *testing.T) {
	var b strings.Builder
	b.WriteString("# Metrics\n\nThis page is generated from the collectors of `telemetry/promwaybill` (`make docs`).\n\n" +
		"`waybill serve` shows those of the outbox and of its relay at `/metrics`, and those of the checks that it runs; a consumer shows its own, see the package's documentation. " +
		"Topics are told apart up to a bound (`serve.max_topics`), and are \"other\" beyond it; no label holds a key, an id or the text of an error.\n")
	for _, c := range []struct {
		title     string
		collector prometheus.Collector
	}{
		{"Outbox", promwaybill.NewOutbox(memstore.New(nil), 0)},
		{"Relay", promwaybill.NewRelay(nil)},
		{"Consumer", promwaybill.NewConsumer("g", nil)},
		{"Reconciliation", promwaybill.NewReconcile(nil, nil, 0)},
	} {
		rows := make(map[string]string)
		descriptions := make(chan *prometheus.Desc, 100)
		c.collector.Describe(descriptions)
		close(descriptions)
		for d := range descriptions {
			m := described.FindStringSubmatch(d.String())
			if m == nil {
				t.Fatalf("cannot be read: %s", d)
			}
			labels := strings.ReplaceAll(m[4], ",", ", ")
			if m[3] != "" {
				labels = strings.TrimSuffix("group, "+labels, ", ")
			}
			rows[m[1]] = fmt.Sprintf("| `%s` | %s | %s |\n", m[1], labels, strings.ReplaceAll(m[2], "|", "\\|"))
		}
		fmt.Fprintf(&b, "\n## %s\n\n| name | labels | meaning |\n| --- | --- | --- |\n", c.title)
		for _, name := range slices.Sorted(maps.Keys(rows)) {
			b.WriteString(rows[name])
		}
	}
	file := filepath.Join("..", "..", "docs", "metrics.md")
	if *update {
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(page) != b.String() {
		t.Error("docs/metrics.md is not what the collectors say; run make docs")
	}
}
