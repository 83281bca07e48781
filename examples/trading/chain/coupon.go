package chain

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
)

// Coupons is another company's service. It recognises a key that it has seen and
// repeats its answer, which is what makes a second call harmless.
type Coupons interface {
	Grant(ctx context.Context, key, customer string) (code string, err error)
}

// CouponService is such a service, in memory and over HTTP. It may be used from
// several goroutines.
type CouponService struct {
	mu     sync.Mutex
	calls  int
	grants map[string]string // code by key
}

var _ Coupons = (*CouponService)(nil)

// Grant gives the customer a coupon, once for each key.
func (s *CouponService) Grant(_ context.Context, key, customer string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	if s.grants == nil {
		s.grants = make(map[string]string)
	}
	if s.grants[key] == "" {
		s.grants[key] = fmt.Sprintf("COUPON-%d-%s", len(s.grants)+1, customer)
	}
	return s.grants[key], nil
}

// Count returns how often it was called, and how many coupons there are.
func (s *CouponService) Count() (calls, grants int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls, len(s.grants)
}

// ServeHTTP answers POST with the header Idempotency-Key and the customer as body.
func (s *CouponService) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	customer, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<10))
	if err != nil || r.Header.Get("Idempotency-Key") == "" {
		http.Error(w, "a key and a customer are required", http.StatusBadRequest)
		return
	}
	code, err := s.Grant(r.Context(), r.Header.Get("Idempotency-Key"), string(customer))
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_ = json.NewEncoder(w).Encode(map[string]string{"code": code})
}

// CouponClient calls a [CouponService] over HTTP.
type CouponClient struct{ URL string }

// Grant asks the service.
func (c CouponClient) Grant(ctx context.Context, key, customer string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL, strings.NewReader(customer))
	if err != nil {
		return "", err
	}
	request.Header.Set("Idempotency-Key", key)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	var answer struct{ Code string }
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("coupon service: %s", response.Status)
	}
	if err := json.NewDecoder(io.LimitReader(response.Body, 1<<16)).Decode(&answer); err != nil {
		return "", err
	}
	return answer.Code, nil
}
