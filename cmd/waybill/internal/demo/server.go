package demo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
	"github.com/waybillhq/waybill/broker/kafka"
	"github.com/waybillhq/waybill/broker/natsjs"
	"github.com/waybillhq/waybill/cmd/waybill/internal/config"
	"github.com/waybillhq/waybill/cmd/waybill/internal/gate"
)

// topicRetention bounds for how long a server keeps what the demo sent: the
// adapters delete no topics.
const topicRetention = time.Hour

// serverHouse is a broker that others may be using. It goes away for the demo
// alone: relay and consumer reach it through a gate that can be shut.
type serverHouse struct {
	kind   string // kafka or nats
	url    string
	name   string // of the topic and the group
	gate   *gate.Gate
	door   string // kafka: how clients get through the gate
	inside string // nats: the URL that leads through the gate; url where none does
	why    string // there is no way through the gate
}

// checkBroker says what is wrong with the URL of a broker, without showing it.
func checkBroker(text string) (kind string, u *url.URL, err error) {
	if u, err = url.Parse(text); err == nil && u.Host != "" {
		switch u.Scheme {
		case "kafka":
			_, err = kafka.ParseURL(text)
			return "kafka", u, err
		case "nats", "tls":
			return "nats", u, nil
		}
	}
	return "", nil, &waybill.Error{Op: "demo", Key: "--broker", Err: errors.New("no broker that the demo knows"), Hint: "write kafka://HOST:PORT or nats://HOST:PORT"}
}

func newServerHouse(ctx context.Context, text, name string) (*serverHouse, error) {
	kind, u, err := checkBroker(text)
	if err != nil {
		return nil, err
	}
	h := &serverHouse{kind: kind, url: text, inside: text, name: strings.ReplaceAll(name, "_", "-"), gate: gate.New()}
	switch {
	case kind == "kafka":
		h.door, err = h.gate.Door(ctx)
	case u.Scheme == "tls" || strings.Contains(text, ","):
		// Its name would not fit the certificate, and a client goes from server to server.
		h.why = "a NATS server behind TLS, or several of them, cannot be kept from its clients by the demo"
	default:
		target := u.Host
		if u.Port() == "" {
			target = net.JoinHostPort(u.Hostname(), "4222")
		}
		var forwarded string
		if forwarded, err = h.gate.Forward(ctx, target); err == nil {
			through := *u
			through.Host = forwarded
			h.inside = through.String()
		}
	}
	if err != nil {
		return nil, errors.Join(err, h.gate.Close())
	}
	return h, nil
}

// client is what both adapters are.
type client interface {
	broker.Subscriber
	broker.TopicAdmin
}

// client connects, at its wish past the gate: then errors name the real server.
func (h *serverHouse) client(ctx context.Context, past bool) (client, error) {
	if h.kind == "kafka" {
		c, err := kafka.ParseURL(h.url)
		if err != nil {
			return nil, err
		}
		if !past {
			c.Dial = gate.Through(h.door)
		}
		c.TopicConfig = map[string]string{"retention.ms": strconv.FormatInt(topicRetention.Milliseconds(), 10)}
		b, err := kafka.Open(ctx, c)
		if err != nil { // not b: a nil *kafka.Broker would not be a nil client
			return nil, err
		}
		return b, nil
	}
	url := h.inside
	if past {
		url = h.url
	}
	b, err := natsjs.Open(ctx, url, &natsjs.Config{Retention: topicRetention})
	if err != nil {
		return nil, err
	}
	return b, nil
}

func (h *serverHouse) open(ctx context.Context) error {
	h.gate.Open()
	c, err := h.client(ctx, true)
	if err != nil {
		return err
	}
	return errors.Join(c.EnsureTopics(ctx, []broker.TopicSpec{{Name: h.name}}), c.Close())
}

func (h *serverHouse) away() error {
	if !h.gate.Shut() {
		return errors.New("neither relay nor consumer reaches the broker through the gate: its outage would be none")
	}
	return nil
}

func (h *serverHouse) reason() string { return h.why }
func (h *serverHouse) close() error   { return h.gate.Close() }
func (h *serverHouse) topic() string  { return h.name }
func (h *serverHouse) group() string  { return h.name }

func (h *serverHouse) subscriber(ctx context.Context) (broker.Subscriber, error) {
	return h.client(ctx, false)
}

func (h *serverHouse) flags() []string { return nil }

// Where the relay finds the broker: by itself later, and during the demo.
const (
	brokerURL = "broker.url"
	gateURL   = "gate.url"
)

func (h *serverHouse) environment(dir string) []string {
	if h.kind == "kafka" {
		return []string{gate.Env + "=" + h.door}
	}
	return []string{"WAYBILL_BROKER_URL_FILE=" + filepath.Join(dir, gateURL)}
}

func (h *serverHouse) files() map[string]string {
	if h.kind == "kafka" {
		return map[string]string{brokerURL: h.url}
	}
	return map[string]string{brokerURL: h.url, gateURL: h.inside}
}

func (h *serverHouse) settings() string {
	return fmt.Sprintf(`  kind: %s
  url_file: %s
  retention: %s
`, h.kind, brokerURL, topicRetention)
}

func (h *serverHouse) describe() string {
	return fmt.Sprintf("topic %s of %s", h.name, config.Redact(h.url, nil))
}
