package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/waybillhq/waybill/cmd/waybill/internal/config"
	"github.com/waybillhq/waybill/ops"
	"github.com/waybillhq/waybill/relay"
)

// probes answer whoever watches this process.
type probes struct {
	store   ops.StatusStore
	config  ops.StatusConfig
	secrets []string // that no answer may show

	mu      sync.Mutex
	relay   *relay.Relay
	waiting error // why there is no relay yet
	ending  bool

	reading sync.Mutex // one question to the database at a time
	read    time.Time
	answer  healthView
}

// healthView is the answer of /healthz. Its form is stable.
type healthView struct {
	State  string      `json:"state"`
	Causes []ops.Cause `json:"causes"`
}

// fresh is how long an answer is given again: probes must not cost the database
// more than the relay does.
const fresh = 2 * time.Second

func newProbes(st ops.StatusStore, config ops.StatusConfig, secrets []string) *probes {
	return &probes{store: st, config: config, secrets: secrets}
}

// runs says that the relay works from now on, until ended.
func (p *probes) runs(r *relay.Relay) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.relay, p.waiting = r, nil
}

func (p *probes) waits(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting = err
}

func (p *probes) ends() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ending = true
}

func (p *probes) ready(w http.ResponseWriter, _ *http.Request) {
	p.mu.Lock()
	answer := struct {
		Ready bool   `json:"ready"`
		Text  string `json:"text"`
	}{Text: "the relay works", Ready: true}
	switch {
	case p.ending:
		answer.Ready, answer.Text = false, "stopping"
	case p.relay == nil:
		answer.Ready, answer.Text = false, "starting: the broker has not been reached yet"
	case starting(p.relay.Health()):
		answer.Ready, answer.Text = false, "starting: no lane has been claimed yet"
	}
	p.mu.Unlock()
	code := http.StatusOK
	if !answer.Ready {
		code = http.StatusServiceUnavailable
	}
	p.writeJSON(w, code, answer)
}

func starting(h relay.Health) bool {
	return len(h.Reasons) == 1 && h.Reasons[0].Name == "starting"
}

func (p *probes) health(w http.ResponseWriter, r *http.Request) {
	answer := p.look(r.Context())
	code := http.StatusOK
	if answer.State == ops.Red {
		code = http.StatusServiceUnavailable
	}
	p.writeJSON(w, code, answer)
}

func (p *probes) look(ctx context.Context) healthView {
	p.reading.Lock()
	defer p.reading.Unlock()
	if now().Sub(p.read) < fresh {
		return p.answer
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	p.answer = p.ask(ctx)
	p.read = now()
	return p.answer
}

func (p *probes) ask(ctx context.Context) healthView {
	view := healthView{State: ops.Green, Causes: []ops.Cause{}}
	status, err := ops.ReadStatus(ctx, p.store, &p.config)
	if err != nil {
		view.State = ops.Red
		view.Causes = append(view.Causes, ops.Cause{
			Name: ops.CauseDatabase, State: ops.Red, Text: oneLine(err.Error()), Fix: "start the database or mend store.dsn; the relay goes on by itself",
		})
		return view
	}
	view.State, view.Causes = status.State, status.Causes
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.relay != nil {
		// A database that cannot be written does not hold the report that says so.
		for _, reason := range p.relay.Health().Reasons {
			if reason.Name == "database" {
				view.State = ops.Red
				view.Causes = append(view.Causes, ops.Cause{
					Name: ops.CauseDatabase, State: ops.Red, Text: oneLine(reason.Text), Fix: "make the database answer and writable again; the relay goes on by itself",
				})
			}
		}
	}
	if p.waiting != nil {
		view.State = ops.Red
		view.Causes = append(view.Causes, ops.Cause{
			Name: ops.CauseBroker, State: ops.Red, Text: "the relay waits for its broker: " + oneLine(p.waiting.Error()),
			Fix: "start the broker or mend broker.url; the relay starts by itself then",
		})
	}
	return view
}

func (p *probes) writeJSON(w http.ResponseWriter, code int, value any) {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		http.Error(w, "cannot be shown", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_, _ = io.WriteString(w, config.Redact(string(text), p.secrets)+"\n") // who asked may be gone
}
