package natsjs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/waybillhq/waybill"
)

// EmbeddedMaxPayload is the max_payload of an embedded server: an event of the
// greatest size fits, and the server does not yet warn of it.
const EmbeddedMaxPayload = 8 << 20

const (
	startTimeout = 20 * time.Second
	startPoll    = 200 * time.Millisecond // between looks at why it does not start
)

// EmbeddedConfig is how to run a NATS server inside this process.
type EmbeddedConfig struct {
	// StoreDir keeps the streams. A server that is started again with the same
	// directory has what the former one had confirmed. Required.
	StoreDir string
	// Port to listen on, on 127.0.0.1. 0 means any free one; a server that must be
	// found again after a restart needs a fixed one.
	Port int
	// SyncAlways syncs each write to the disk before it is confirmed. Without it a
	// confirmed record survives the end of this process, but not a power failure.
	// It makes the server slower by an order of magnitude.
	SyncAlways bool
	// MaxPayload bounds a message with its headers. Default: [EmbeddedMaxPayload].
	MaxPayload int
	// Logger takes the server's log. Default: discards.
	Logger *slog.Logger
}

// Embedded is a NATS server inside this process.
type Embedded struct {
	server *server.Server
	once   sync.Once
}

// StartEmbedded starts a server with JetStream and returns when it accepts
// connections. It is meant for demonstrations, tests and small installations: it
// has no user accounts and listens on the loopback interface only.
func StartEmbedded(ctx context.Context, config *EmbeddedConfig) (*Embedded, error) {
	fail := func(err error, hint string) (*Embedded, error) {
		return nil, &waybill.Error{Op: "start nats server", Err: err, Hint: hint}
	}
	if config == nil || config.StoreDir == "" {
		return fail(errors.New("a directory for its streams is required"), "set StoreDir")
	}
	if err := ctx.Err(); err != nil {
		return fail(err, "")
	}
	options := &server.Options{
		ServerName: "waybill",
		Host:       "127.0.0.1",
		Port:       config.Port,
		JetStream:  true,
		StoreDir:   config.StoreDir,
		SyncAlways: config.SyncAlways,
		MaxPayload: int32(config.MaxPayload),
		NoSigs:     true,
	}
	if config.Port == 0 {
		options.Port = server.RANDOM_PORT
	}
	if config.MaxPayload == 0 {
		options.MaxPayload = EmbeddedMaxPayload
	}
	s, err := server.NewServer(options)
	if err != nil {
		return fail(err, "")
	}
	log := &serverLog{logger: config.Logger}
	if log.logger == nil {
		log.logger = slog.New(slog.DiscardHandler)
	}
	s.SetLoggerV2(log, false, false, false)
	e := &Embedded{server: s}
	go s.Start() // beside this: the recovery of large streams may outlast ctx
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for !s.ReadyForConnections(startPoll) {
		cause := log.fatal()
		if cause == nil {
			cause = ctx.Err()
		}
		if cause != nil {
			_ = e.Close()
			return fail(cause, "is the port free, and the directory not in use?")
		}
	}
	if !s.JetStreamEnabled() {
		_ = e.Close()
		return fail(errors.Join(errors.New("JetStream is off"), log.fatal()), "can the directory be written?")
	}
	return e, nil
}

// ClientURL is where clients connect.
func (e *Embedded) ClientURL() string { return e.server.ClientURL() }

// Close stops the server. What it has confirmed stays in its directory.
func (e *Embedded) Close() error {
	e.once.Do(func() {
		e.server.Shutdown()
		e.server.WaitForShutdown()
	})
	return nil
}

// serverLog writes the server's log to a slog.Logger, and remembers why it could
// not start: by itself the server would end the process then.
type serverLog struct {
	logger *slog.Logger
	mu     sync.Mutex
	cause  error
}

func (l *serverLog) fatal() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cause
}

func (l *serverLog) write(level slog.Level, format string, args []any) {
	if l.logger.Enabled(context.Background(), level) {
		l.logger.Log(context.Background(), level, "nats server: "+fmt.Sprintf(format, args...))
	}
}

func (l *serverLog) Noticef(format string, args ...any) { l.write(slog.LevelDebug, format, args) }
func (l *serverLog) Warnf(format string, args ...any)   { l.write(slog.LevelWarn, format, args) }
func (l *serverLog) Errorf(format string, args ...any)  { l.write(slog.LevelError, format, args) }
func (l *serverLog) Debugf(format string, args ...any)  { l.write(slog.LevelDebug, format, args) }
func (l *serverLog) Tracef(format string, args ...any)  { l.write(slog.LevelDebug, format, args) }

func (l *serverLog) Fatalf(format string, args ...any) {
	l.write(slog.LevelError, format, args)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cause == nil {
		l.cause = fmt.Errorf(format, args...)
	}
}
