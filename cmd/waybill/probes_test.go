package main

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waybillhq/waybill/ops"
	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/memstore"
)

// ask makes one request of fresh probes and returns code and answer.
func ask(t *testing.T, p *probes, path string) (int, string) {
	t.Helper()
	answer := httptest.NewRecorder()
	handler(p, prometheus.NewRegistry()).ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	return answer.Code, answer.Body.String()
}

func TestHealthNamesWhatIsWrongAndKeepsSecrets(t *testing.T) {
	live := func(st *memstore.Store) {
		if _, _, err := st.Renew(t.Context(), store.Heartbeat{Owner: "r", Host: "h:1", TTL: time.Minute}); err != nil {
			t.Fatal(err)
		}
		if _, err := st.Claim(t.Context(), "r", time.Minute, store.Lanes); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name  string
		plant func(*memstore.Store, *probes)
		code  int
		cause string // empty: none
	}{
		{"all well", func(st *memstore.Store, _ *probes) { live(st) }, http.StatusOK, ""},
		{"nobody relays", func(*memstore.Store, *probes) {}, http.StatusServiceUnavailable, ops.CauseNoRelay},
		{"database away", func(st *memstore.Store, _ *probes) {
			st.SetError(func(string) error { return errors.New("refused postgres://app:" + "hunter2" + "@db") })
		}, http.StatusServiceUnavailable, ops.CauseDatabase},
		{"broker away", func(st *memstore.Store, p *probes) {
			live(st)
			p.waits(errors.New("token hunter2 is not known"))
		}, http.StatusServiceUnavailable, ops.CauseBroker},
	} {
		t.Run(c.name, func(t *testing.T) {
			st := memstore.New(nil)
			p := newProbes(st, ops.StatusConfig{}, []string{"hunter2"})
			c.plant(st, p)
			code, text := ask(t, p, "/healthz")
			var view healthView
			if err := json.Unmarshal([]byte(text), &view); err != nil {
				t.Fatalf("%v: %s", err, text)
			}
			if code != c.code || strings.Contains(text, "hunter2") {
				t.Errorf("got %d, want %d: %s", code, c.code, text)
			}
			named := ""
			for _, cause := range view.Causes {
				named = cause.Name
				if cause.Fix == "" {
					t.Errorf("no fix: %+v", cause)
				}
			}
			if named != c.cause {
				t.Errorf("got %q, want %q: %s", named, c.cause, text)
			}
		})
	}
}

func TestReadinessFollowsTheRelay(t *testing.T) {
	p := newProbes(memstore.New(nil), ops.StatusConfig{}, nil)
	if code, text := ask(t, p, "/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(text, "starting") {
		t.Errorf("at the start: %d %s", code, text)
	}
	p.ends()
	if code, text := ask(t, p, "/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(text, "stopping") {
		t.Errorf("at the end: %d %s", code, text)
	}
	if code, _ := ask(t, p, "/livez"); code != http.StatusOK {
		t.Errorf("alive: %d", code)
	}
	if code, _ := ask(t, p, "/debug/pprof/"); code != http.StatusNotFound {
		t.Errorf("something else is served: %d", code)
	}
}
