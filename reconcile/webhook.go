package reconcile

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/waybillhq/waybill"
)

// WebhookConfig says how a webhook is called. Nil means all defaults.
type WebhookConfig struct {
	Header   http.Header   // sent along, as an authorization
	Timeout  time.Duration // of one attempt. Default 5 s
	Attempts int           // default 3
	Clock    Clock         // default: the machine's
}

// Webhook posts alerts as JSON to an address, which may itself be a secret: no
// error shows it. An answer of 2xx is success. Connections that fail, 429 and
// 5xx are tried again, after 1 s, 2 s and so on; other answers are not.
type Webhook struct {
	address string
	config  WebhookConfig
	client  *http.Client
}

// NewWebhook makes a [Notifier] of an http or https address.
func NewWebhook(address string, config *WebhookConfig) (*Webhook, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, &waybill.Error{Op: "webhook", Err: errors.New("the address is no http or https URL")}
	}
	w := &Webhook{address: address}
	if config != nil {
		w.config = *config
	}
	if w.config.Timeout <= 0 {
		w.config.Timeout = 5 * time.Second
	}
	if w.config.Attempts <= 0 {
		w.config.Attempts = 3
	}
	if w.config.Clock == nil {
		w.config.Clock = wallClock{}
	}
	w.client = &http.Client{
		Timeout: w.config.Timeout,
		// A redirected POST becomes a GET without a body, and may go to a stranger.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return w, nil
}

// Notify implements [Notifier].
func (w *Webhook) Notify(ctx context.Context, alert *Alert) error {
	body, err := json.Marshal(alert)
	if err != nil {
		return err
	}
	for attempt := 1; ; attempt++ {
		again, err := w.post(ctx, body)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case !again || attempt == w.config.Attempts:
			return &waybill.Error{Op: "webhook", Key: alert.Name, Err: err, Hint: "the alert is sent again at the next look"}
		}
		if err := w.config.Clock.Wait(ctx, time.Duration(attempt)*time.Second); err != nil {
			return err
		}
	}
}

func (w *Webhook) post(ctx context.Context, body []byte) (again bool, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, w.address, bytes.NewReader(body))
	if err != nil {
		return false, errors.New("the address is not valid")
	}
	for name, values := range w.config.Header {
		request.Header[name] = values
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := w.client.Do(request)
	if err != nil {
		var named *url.Error
		if errors.As(err, &named) {
			err = named.Err // without the address
		}
		return true, err
	}
	defer func() { _ = response.Body.Close() }()
	_, _ = io.CopyN(io.Discard, response.Body, 64<<10) // so that the connection can be used again
	if response.StatusCode/100 == 2 {
		return false, nil
	}
	again = response.StatusCode == http.StatusTooManyRequests || response.StatusCode/100 == 5
	return again, fmt.Errorf("it answered %d %s", response.StatusCode, http.StatusText(response.StatusCode))
}
