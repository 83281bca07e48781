package main

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"

	"github.com/waybillhq/waybill/inbox"
	"github.com/waybillhq/waybill/relay"
)

// handler is the HTTP side of the service.
func (s *service) handler(health func() (relay.Health, inbox.Health)) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders", s.servePlace)
	mux.HandleFunc("POST /orders/{id}/pay", s.servePay)
	mux.HandleFunc("GET /orders/{id}", s.serveGet)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		r, c := health()
		status := http.StatusOK
		if r.State == relay.Red || c.State == inbox.Red {
			status = http.StatusServiceUnavailable
		}
		answer(w, status, map[string]any{"relay": r, "consumer": c})
	})
	return mux
}

func (s *service) servePlace(w http.ResponseWriter, r *http.Request) {
	var o order
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<16)).Decode(&o); err != nil {
		answer(w, http.StatusBadRequest, map[string]string{"error": err.Error()})
		return
	}
	if o.ID == "" || o.Customer == "" || o.TotalCents <= 0 {
		answer(w, http.StatusBadRequest, map[string]string{"error": "id, customer and a positive totalCents are required"})
		return
	}
	o.Status, o.Version = "PLACED", 1
	if err := s.place(r.Context(), o); err != nil {
		refuse(w, err)
		return
	}
	answer(w, http.StatusCreated, o)
}

func (s *service) servePay(w http.ResponseWriter, r *http.Request) {
	if err := s.pay(r.Context(), r.PathValue("id")); err != nil {
		refuse(w, err)
		return
	}
	s.serveGet(w, r)
}

// serveGet shows an order, and how often the consumer has shipped it: never,
// and soon after it was paid once.
func (s *service) serveGet(w http.ResponseWriter, r *http.Request) {
	o, err := find(r.Context(), s.db, r.PathValue("id"))
	if err != nil {
		refuse(w, err)
		return
	}
	n, err := shipped(r.Context(), s.shipments, o.ID)
	if err != nil {
		refuse(w, err)
		return
	}
	answer(w, http.StatusOK, struct {
		order
		Shipments int `json:"shipments"`
	}{o, n})
}

func refuse(w http.ResponseWriter, err error) {
	status, text := http.StatusInternalServerError, "internal error"
	switch {
	case errors.Is(err, errExists):
		status, text = http.StatusConflict, err.Error()
	case errors.Is(err, errMissing):
		status, text = http.StatusNotFound, err.Error()
	default:
		slog.Error("request failed", "error", err)
	}
	answer(w, status, map[string]string{"error": text})
}

func answer(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(value); err != nil {
		slog.Warn("answer not written", "error", err)
	}
}
