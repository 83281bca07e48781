package main

import (
	"encoding/json"
	"errors"
	"os/exec"
	"strings"
	"testing"
)

// measured runs a bench with few events and returns what it printed.
func measured(t *testing.T, args ...string) map[string]any {
	t.Helper()
	var stderr strings.Builder
	cmd := exec.CommandContext(t.Context(), "waybill", append(append([]string{"bench"}, args...), "--json")...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("waybill bench %v: %v\n%s", args, err, &stderr)
	}
	var report map[string]any
	if err := json.Unmarshal(out, &report); err != nil {
		t.Fatalf("not one JSON object: %v\n%s", err, out)
	}
	for _, name := range []string{"host", "versions"} {
		if _, ok := report[name].(map[string]any); !ok {
			t.Errorf("%s is %v, want an object", name, report[name])
		}
	}
	return report
}

// figure returns a number of a report that must be above 0.
func figure(t *testing.T, report map[string]any, name string) float64 {
	t.Helper()
	n, ok := report[name].(float64)
	if !ok || n <= 0 {
		t.Errorf("%s is %v, want a number above 0", name, report[name])
	}
	return n
}

// A figure that does not follow from the runs' would be made up.
func TestBenchRelay(t *testing.T) {
	t.Parallel()
	report := measured(t, "relay", "--events", "300", "--runs", "3", "--keys", "20", "--mode", "both")
	each, _ := report["each"].([]any)
	if len(each) != 3 {
		t.Fatalf("%d runs, want 3", len(each))
	}
	for _, name := range []string{"relay_events_per_s", "loop_events_per_s", "ratio", "rss_mb", "relay_cpu_us", "forget_events_per_s"} {
		got, below, above := figure(t, report, name), 0, 0
		for _, run := range each {
			n := figure(t, run.(map[string]any), name)
			if n <= got {
				below++
			}
			if n >= got {
				above++
			}
		}
		if below < 2 || above < 2 {
			t.Errorf("%s is %v, which is not the median of the runs %v", name, got, each)
		}
	}
	for _, run := range each {
		r := run.(map[string]any)
		wantRatio(t, r, "ratio", "relay_events_per_s", "loop_events_per_s")
	}
	if report["mode"] != "both" || report["events"] != 300.0 || report["runs"] != 3.0 {
		t.Errorf("the report does not tell what was asked for: %v", report)
	}
	limits, _ := report["limits"].(map[string]any)
	figure(t, limits, "produce_events_per_s")
	figure(t, limits, "read_events_per_s")
}

// wantRatio compares a ratio with what its two figures make it. All three were
// rounded, which is much of a small figure.
func wantRatio(t *testing.T, report map[string]any, name, above, below string) {
	t.Helper()
	got, a, b := figure(t, report, name), figure(t, report, above), figure(t, report, below)
	least := (a-rounding(above))/(b+rounding(below)) - 0.001
	most := (a+rounding(above))/max(b-rounding(below), 0.0001) + 0.001
	if got < least || got > most {
		t.Errorf("%s is %v, but %s / %s is %v / %v", name, got, above, below, a, b)
	}
}

// rounding is how far a figure may be from what was measured.
func rounding(name string) float64 {
	if strings.HasSuffix(name, "_ms") {
		return 0.005
	}
	return 0.5
}

func TestBenchAppend(t *testing.T) {
	t.Parallel()
	report := measured(t, "append", "--events", "60", "--writers", "3", "--runs", "1")
	wantRatio(t, report, "append_ratio", "append_tx_per_s", "insert_tx_per_s")
	figure(t, report, "update_tx_per_s")
	if report["writers"] != 3.0 || report["events"] != 60.0 || report["append_commit_tx_per_s"] != nil {
		t.Errorf("the report does not tell what was asked for, or SQLite commits with its appends: %v", report)
	}
}

func TestBenchLatency(t *testing.T) {
	t.Parallel()
	report := measured(t, "latency", "--events", "100", "--rate", "200", "--runs", "1")
	p50, p95, p99, most := figure(t, report, "p50_ms"), figure(t, report, "p95_ms"), figure(t, report, "p99_ms"), figure(t, report, "max_ms")
	if p50 > p95 || p95 > p99 || p99 > most {
		t.Errorf("p50 %v, p95 %v, p99 %v and the slowest %v are out of order", p50, p95, p99, most)
	}
	figure(t, report, "relay_cpu")
	figure(t, report, "rss_mb")
	if reached := figure(t, report, "reached_per_s"); reached > 250 {
		t.Errorf("%v events/s were written, at most 200 were asked for", reached)
	}
}

func TestBenchScale(t *testing.T) {
	t.Parallel()
	report := measured(t, "scale", "--events", "1000", "--settled", "2500", "--pending", "1000", "--held-keys", "10", "--held-rows", "5", "--runs", "1")
	wantRatio(t, report, "claim_ratio", "claim_large_ms", "claim_small_ms")
	wantRatio(t, report, "held_ratio", "held_events_per_s", "plain_events_per_s")
	wantRatio(t, report, "reader_ratio", "reader_events_per_s", "plain_events_per_s")
	if report["settled"] != 2500.0 || report["held_keys"] != 10.0 {
		t.Errorf("the report does not tell what was asked for: %v", report)
	}
}

func TestBenchRefusesWhatItCannotMeasure(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"--runs", "0"}, {"--events", "0"}, {"--payload", "3"}, {"--store", "redis://user:hunter2@a"}, {"--broker", "amqp://user:hunter2@a"},
	} {
		out, err := exec.CommandContext(t.Context(), "waybill", append([]string{"bench", "relay"}, args...)...).CombinedOutput()
		if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != exitUsage {
			t.Errorf("%v: %v, want exit code %d\n%s", args, err, exitUsage, out)
		}
		if strings.Contains(string(out), "hunter2") {
			t.Errorf("%v: the output shows a password: %s", args, out)
		}
	}
}

// The slowest read must be the one that the comparison is held against.
func TestBenchReconcile(t *testing.T) {
	t.Parallel()
	for _, log := range []string{"outbox", "own"} {
		report := measured(t, "reconcile", "--keys", "3000", "--versions", "2", "--runs", "1", "--log", log)
		slowest := "write_keys_per_s"
		for _, name := range []string{"log_keys_per_s", "read_keys_per_s"} {
			if figure(t, report, name) < figure(t, report, slowest) {
				slowest = name
			}
		}
		wantRatio(t, report, "ratio", "keys_per_s", slowest)
		wantRatio(t, report, "at_once_ratio", "keys_per_s", "at_once_keys_per_s")
		figure(t, report, "rss_mb")
		figure(t, report, "cpu_us")
		if report["keys"] != 3000.0 || report["versions_per_key"] != 2.0 || report["log"] != log {
			t.Errorf("the report does not tell what was asked for: %v", report)
		}
	}
}
