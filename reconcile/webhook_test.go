package reconcile

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// hurried waits for nothing, and notes how long it should have.
type hurried struct{ waited time.Duration }

func (h *hurried) Now() time.Time { return testNow }

func (h *hurried) Wait(ctx context.Context, d time.Duration) error {
	h.waited += d
	return ctx.Err()
}

func TestAWebhookIsTriedAgainWhereThatMayHelp(t *testing.T) {
	for _, c := range []struct {
		answers  []int
		attempts int
		ok       bool
		waited   time.Duration
	}{
		{[]int{200}, 1, true, 0},
		{[]int{204}, 1, true, 0},
		{[]int{500, 429, 200}, 3, true, 3 * time.Second},
		{[]int{503, 503, 503, 200}, 3, false, 3 * time.Second},
		{[]int{400, 200}, 1, false, 0},
		{[]int{302, 200}, 1, false, 0},
	} {
		calls := 0
		var body Alert
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/json" || r.Header.Get("Authorization") != "Bearer t" {
				t.Errorf("asked by %s, %v", r.Method, r.Header)
			}
			text, err := io.ReadAll(r.Body)
			if err != nil || json.Unmarshal(text, &body) != nil {
				t.Errorf("body %s, %v", text, err)
			}
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(c.answers[calls])
			calls++
		}))
		clock := &hurried{}
		hook, err := NewWebhook(server.URL+"/secret", &WebhookConfig{Clock: clock, Header: http.Header{"Authorization": {"Bearer t"}}})
		if err != nil {
			t.Fatal(err)
		}
		err = hook.Notify(t.Context(), &Alert{Check: "orders", Name: "MISSING_EVENT", Firing: true, Count: 2})
		if (err == nil) != c.ok || calls != c.attempts || clock.waited != c.waited || body.Count != 2 || !body.Firing {
			t.Errorf("%v: %d calls, waited %s, %v, body %+v", c.answers, calls, clock.waited, err, body)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("the error shows the address: %v", err)
		}
		server.Close()
		if err := hook.Notify(t.Context(), &Alert{}); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("with nobody there: %v", err)
		}
	}
}

func TestAWebhookEndsWithItsContext(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	hook, err := NewWebhook(server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := hook.Notify(ctx, &Alert{}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	for _, address := range []string{"", "ftp://host/secret", "http://", "http://host:secret:/"} {
		if _, err := NewWebhook(address, nil); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", address, err)
		}
	}
}
