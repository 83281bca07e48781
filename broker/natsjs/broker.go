package natsjs

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
)

const (
	reconnectMin = 20 * time.Millisecond
	reconnectMax = 2 * time.Second
	// ackTimeout is when an unanswered message is forgotten; its call has ended by
	// its own context long before.
	ackTimeout = time.Minute
	// maxUnanswered bounds the messages that wait for an answer, over all calls;
	// beyond it a send waits stallWait for room.
	maxUnanswered = 1 << 16
	stallWait     = time.Second
)

var (
	errClosed       = errors.New("the client is closed")
	errDisconnected = errors.New("there is no connection to the NATS server")
)

const hintServer = "start the server, or look at the network; the client reconnects by itself"

// Broker is a connection to a NATS server with JetStream. It implements
// [broker.Publisher], [broker.Subscriber], [broker.TopicAdmin] and
// [broker.Checker]. All methods may be called from several goroutines.
type Broker struct {
	config Config
	conn   *nats.Conn
	js     jetstream.JetStream

	mu     sync.Mutex
	topics map[string]*topic      // what is known of streams
	sent   map[*nats.Msg]answerTo // messages without an answer
	// linked is closed and replaced at each change of the connection.
	linked chan struct{}
	asking map[*question]struct{}

	closed    chan struct{}
	closeOnce sync.Once
	// gone is closed by the client library when the connection is closed for good.
	gone chan struct{}
}

// Open connects to the servers of a URL, or of several separated by commas. It
// fails when none can be reached now; later the client reconnects for ever.
func Open(ctx context.Context, urls string, config *Config) (*Broker, error) {
	c, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	shown, err := redact(urls)
	if err != nil {
		return nil, &waybill.Error{Op: "connect to nats", Err: err, Hint: "write nats://host:port"}
	}
	if err := ctx.Err(); err != nil {
		return nil, &waybill.Error{Op: "connect to nats", Key: shown, Err: err}
	}
	b := &Broker{
		config: c,
		topics: make(map[string]*topic),
		sent:   make(map[*nats.Msg]answerTo),
		asking: make(map[*question]struct{}),
		linked: make(chan struct{}),
		closed: make(chan struct{}),
		gone:   make(chan struct{}),
	}
	if b.conn, err = nats.Connect(urls, b.options(ctx)...); err != nil {
		return nil, &waybill.Error{Op: "connect to nats", Key: shown, Err: withoutURLs(err), Hint: connectHint(err)}
	}
	b.js, err = jetstream.New(b.conn,
		jetstream.WithPublishAsyncMaxPending(maxUnanswered),
		jetstream.WithPublishAsyncTimeout(ackTimeout),
		jetstream.WithPublishAsyncAckHandler(b.answered),
		jetstream.WithPublishAsyncErrHandler(b.failed))
	if err != nil {
		b.conn.Close()
		return nil, &waybill.Error{Op: "connect to nats", Key: shown, Err: err}
	}
	return b, nil
}

// connectHint tells a server that does not answer from one that answers no.
func connectHint(err error) string {
	var unverified *tls.CertificateVerificationError
	switch {
	case errors.Is(err, nats.ErrSecureConnWanted):
		return "the URL demands TLS, which the server does not offer: write nats://, or give the server a certificate"
	case errors.Is(err, nats.ErrSecureConnRequired):
		return "the server demands TLS: write tls://"
	case errors.As(err, &unverified):
		return "the server's certificate cannot be verified: is its authority known to this system, and does the URL name the host as the certificate does?"
	case errors.Is(err, nats.ErrAuthorization):
		return "check the user and password, or the token, in the URL, or the credentials file"
	}
	return "is the server running, and are the credentials right?"
}

func (b *Broker) options(ctx context.Context) []nats.Option {
	timeout := b.config.ConnectTimeout
	if deadline, ok := ctx.Deadline(); ok {
		timeout = min(timeout, max(until(deadline), time.Millisecond))
	}
	log := b.config.Logger
	options := []nats.Option{
		nats.Name(b.config.Name),
		nats.Timeout(timeout),
		nats.MaxReconnects(-1),
		nats.IgnoreAuthErrorAbort(), // rights that are taken away may be given back
		nats.CustomReconnectDelay(reconnectDelay),
		// Nothing is kept to be sent after a reconnect: a record whose caller was
		// told of a failure must not appear later, behind newer ones.
		nats.ReconnectBufSize(-1),
		nats.PingInterval(10 * time.Second),
		nats.MaxPingsOutstanding(2),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if !b.isClosed() {
				log.Warn("connection to nats lost", "error", err)
			}
			b.hangUp()
			b.link()
		}),
		nats.ReconnectHandler(func(conn *nats.Conn) {
			log.Info("connected to nats again", "server", conn.ConnectedUrlRedacted())
			b.forget()
			b.link()
		}),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			if !b.refused(err) {
				log.Warn("nats reports an error", "error", err)
			}
		}),
		nats.ClosedHandler(func(*nats.Conn) { close(b.gone) }),
	}
	if b.config.User != "" {
		options = append(options, nats.UserInfo(b.config.User, b.config.Password))
	}
	if b.config.Token != "" {
		options = append(options, nats.Token(b.config.Token))
	}
	if b.config.CredentialsFile != "" {
		options = append(options, nats.UserCredentials(b.config.CredentialsFile))
	}
	if b.config.TLS != nil {
		options = append(options, nats.Secure(b.config.TLS))
	}
	return options
}

func reconnectDelay(attempts int) time.Duration {
	return min(reconnectMin<<min(max(attempts-1, 0), 10), reconnectMax)
}

// Close closes the connection. Calls that wait for answers end.
func (b *Broker) Close() error {
	b.closeOnce.Do(func() {
		close(b.closed)
		b.conn.Close()
		b.hangUp()
		b.link()
	})
	<-b.gone
	return nil
}

func (b *Broker) isClosed() bool {
	select {
	case <-b.closed:
		return true
	default:
		return false
	}
}

// usable reports why nothing can be sent now.
func (b *Broker) usable() error {
	switch {
	case b.isClosed():
		return broker.Unavailable(broker.ScopeBroker, errClosed, "")
	case !b.conn.IsConnected():
		return broker.Unavailable(broker.ScopeBroker, b.disconnection(), hintServer)
	}
	return nil
}

func (b *Broker) disconnection() error {
	if err := b.conn.LastError(); err != nil {
		return fmt.Errorf("%w: %w", errDisconnected, err)
	}
	return errDisconnected
}

// link wakes those who wait for a change of the connection.
func (b *Broker) link() {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.linked)
	b.linked = make(chan struct{})
}

// linkChange returns a channel that is closed at the next change of the
// connection.
func (b *Broker) linkChange() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.linked
}

// redact returns the URLs without secrets, or an error that does not show them.
func redact(urls string) (string, error) {
	parts := strings.Split(urls, ",")
	for i, part := range parts {
		part = strings.TrimSpace(part)
		if !strings.Contains(part, "://") {
			part = "nats://" + part
		}
		u, err := url.Parse(part)
		if err != nil || u.Host == "" {
			return "", fmt.Errorf("server %d is not a valid URL", i+1)
		}
		parts[i] = u.Scheme + "://" + u.Host
	}
	return strings.Join(parts, ","), nil
}

// withoutURLs drops what the net packages tell of a URL or an address that may
// hold secrets.
func withoutURLs(err error) error {
	var parse *url.Error
	if errors.As(err, &parse) {
		return parse.Err
	}
	return err
}
