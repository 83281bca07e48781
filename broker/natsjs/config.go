package natsjs

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/waybillhq/waybill"
)

// Defaults of [Config].
const (
	DefaultPrefix     = "waybill"
	DefaultPartitions = 16
	DefaultRetention  = 7 * 24 * time.Hour
)

// Config is how to use a NATS server. A nil *Config is all defaults.
type Config struct {
	// Prefix begins the names of streams, subjects and the bucket of positions.
	// Letters, digits, '-'. Default: [DefaultPrefix].
	Prefix string
	// Partitions is the number of partitions of a new topic that names none.
	// Default: [DefaultPartitions].
	Partitions int
	// Replicas is the number of servers that keep a new stream, and the positions.
	// Default: 1.
	Replicas int
	// Retention is how long a new stream keeps records. Negative means for ever.
	// Default: [DefaultRetention].
	Retention time.Duration
	// MaxBytes bounds a new stream; it then refuses records instead of dropping
	// old ones. 0 means no bound.
	MaxBytes int64
	// ConnectTimeout bounds one attempt to connect. Default: 5 s.
	ConnectTimeout time.Duration
	// Name tells this client from others in the server's monitoring. Default:
	// "waybill".
	Name string
	// User and Password, Token, or CredentialsFile identify this client, where the
	// URL does not.
	User, Password, Token, CredentialsFile string
	// TLS is used for tls:// URLs and where the server demands it. May be nil.
	TLS *tls.Config
	// Logger takes what no error can tell: lost and regained connections, positions
	// that cannot be right. Default: discards.
	Logger *slog.Logger
}

func (c *Config) withDefaults() (Config, error) {
	var out Config
	if c != nil {
		out = *c
	}
	if out.Prefix == "" {
		out.Prefix = DefaultPrefix
	}
	if out.Partitions == 0 {
		out.Partitions = DefaultPartitions
	}
	if out.Replicas == 0 {
		out.Replicas = 1
	}
	if out.Retention == 0 {
		out.Retention = DefaultRetention
	}
	if out.ConnectTimeout == 0 {
		out.ConnectTimeout = 5 * time.Second
	}
	if out.Name == "" {
		out.Name = "waybill"
	}
	if out.Logger == nil {
		out.Logger = slog.New(slog.DiscardHandler)
	}
	bad := func(err error) (Config, error) { return out, &waybill.Error{Op: "configure nats", Err: err} }
	switch {
	case Token(out.Prefix) != out.Prefix || len(out.Prefix) > 32:
		return bad(fmt.Errorf("prefix %q: use at most 32 letters, digits and '-'", out.Prefix))
	case out.Partitions < 1 || out.Partitions > maxPartitions:
		return bad(fmt.Errorf("%d partitions: use 1 to %d", out.Partitions, maxPartitions))
	case out.Replicas < 1 || out.Replicas > 5:
		return bad(fmt.Errorf("%d replicas: use 1 to 5", out.Replicas))
	case out.MaxBytes < 0:
		return bad(errors.New("the bound of a stream is negative"))
	case out.ConnectTimeout < 0:
		return bad(errors.New("the time to connect is negative"))
	}
	return out, nil
}
