package chain

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"

	"github.com/waybillhq/waybill/inbox/guard"
)

// Callback answers the payment provider. Every repetition of a payment gets the
// answer of the first, so that the provider stops; what cannot be accepted gets
// another, so that it does not take it for done.
func (s *Shop) Callback() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /payments", func(w http.ResponseWriter, r *http.Request) {
		var p Payment
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<16)).Decode(&p); err != nil || p.No == "" || p.OrderID == "" {
			http.Error(w, "paymentNo, orderId and amount are required", http.StatusBadRequest)
			return
		}
		first, err := s.Pay(r.Context(), p)
		switch {
		case errors.Is(err, guard.ErrConflict), errors.Is(err, guard.ErrState):
			http.Error(w, err.Error(), http.StatusConflict)
			return
		case errors.Is(err, guard.ErrMissing):
			http.Error(w, err.Error(), http.StatusNotFound)
			return
		case err != nil: // a later call may succeed
			slog.Error("payment failed", "payment", p.No, "error", err)
			http.Error(w, "internal error", http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"paymentNo": p.No, "accepted": true, "first": first})
	})
	return mux
}
