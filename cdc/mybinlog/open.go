package mybinlog

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"net"
	"sync"

	"github.com/waybillhq/waybill/cdc"
)

// Open takes the lock and begins to read.
func (s *Source) Open(ctx context.Context, from cdc.Position) (cdc.Stream, error) {
	held, err := s.lock(ctx)
	if err != nil {
		return nil, err
	}
	opened, err := s.open(ctx, held, from)
	if err != nil {
		held.free(context.WithoutCancel(ctx))
		return nil, err
	}
	return opened, nil
}

func (s *Source) open(ctx context.Context, held *lock, from cdc.Position) (*stream, error) {
	found, err := s.look(ctx)
	if err != nil {
		return nil, err
	}
	text := string(from)
	if from == "" {
		if text, err = s.end(ctx, found); err != nil {
			return nil, err
		}
	}
	start, err := parsePlace(found.flavor, text)
	if err != nil {
		return nil, cdc.Lost(cdc.PositionUnknown, err, hintUnknown)
	}
	if from != "" {
		if err := s.verify(ctx, found, start); err != nil {
			return nil, err
		}
	}
	id := s.serverID(found)
	if rival := s.rival(ctx, id); rival != "" {
		return nil, conflict(id, rival, nil)
	}
	to, err := s.address(ctx)
	if err != nil {
		return nil, err
	}
	return s.start(ctx, held, found, to, id, start)
}

// serverID is the configured one, or else one that is not the server's own.
func (s *Source) serverID(found server) uint32 {
	if s.config.ServerID != 0 {
		return s.config.ServerID
	}
	id := deriveServerID(s.host, s.name)
	if int64(id) == found.number("server_id") {
		id ^= 1
	}
	return id
}

// readerPrefix is how this source's readers call themselves among the replicas;
// what follows is another for each.
func (s *Source) readerPrefix() string {
	sum := sha256.Sum256([]byte(s.host + "\x00" + s.name))
	return "waybill-" + hex.EncodeToString(sum[:6]) + "-"
}

// Empty without encryption.
const cipherSQL = `SHOW SESSION STATUS LIKE 'Ssl_cipher'`

// address takes over how the driver connects. Where the DSN lets it choose
// whether to encrypt, the log comes as the other sessions do.
func (s *Source) address(ctx context.Context) (address, error) {
	settings := s.settings
	to := address{network: settings.Net, host: settings.Addr, user: settings.User, password: settings.Passwd, tls: settings.TLS}
	to.dial = settings.DialFunc
	if to.dial == nil {
		to.dial = new(net.Dialer).DialContext
	}
	if to.tls == nil || !settings.AllowFallbackToPlaintext {
		return to, nil
	}
	encrypted := false
	err := s.table(ctx, cipherSQL, nil, func(row []string) { encrypted = len(row) > 1 && row[1] != "" })
	if !encrypted {
		to.tls = (*tls.Config)(nil)
	}
	return to, classify("look at the encryption", err)
}

// Longer than the relay ever leaves a stream unread: the server ends a reader
// that takes nothing for so long. Seconds.
const patientSQL = `SET SESSION net_write_timeout = 600`

func (s *Source) start(ctx context.Context, held *lock, found server, to address, id uint32, from place) (*stream, error) {
	made := newStream(from)
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	l := &link{
		decoder: &decoder{
			ctx: running, flavor: found.flavor, names: found.tables(s.config), ask: s.columns,
			put: made.put, at: made.at,
		},
		ready: make(chan struct{}), conns: make(map[*silent]struct{}),
	}
	syncer := l.syncer(to, id, s.readerPrefix()+rand.Text()[:8], s.config.Heartbeat)
	set, err := from.wire()
	if err != nil {
		stop()
		return nil, cdc.Lost(cdc.PositionUnknown, err, hintUnknown)
	}
	var goroutines sync.WaitGroup
	made.shut = func(ctx context.Context) {
		stop()
		l.end()
		s.forget(made)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			syncer.Close()
			goroutines.Wait()
			l.decoder.close()
		}()
		select {
		case <-ended:
		case <-ctx.Done():
		}
		held.free(ctx)
	}
	ending := make(chan error, 1)
	goroutines.Go(func() {
		streamer, err := syncer.StartSyncGTID(set)
		if err == nil {
			// Events go to the decoder: this returns when there are no more.
			_, err = streamer.GetEvent(running)
		}
		if running.Err() != nil {
			err = errClosed
		} else {
			err = s.ending(running, id, made.reached(), err)
		}
		ending <- err
		made.fail(err)
	})
	select {
	case <-l.ready:
		goroutines.Go(func() { held.keep(running, made.fail) })
		s.remember(made)
		return made, nil
	case err = <-ending:
	case <-ctx.Done():
		err = ctx.Err()
	}
	// The caller frees the lock.
	stop()
	l.end()
	syncer.Close()
	goroutines.Wait()
	return nil, err
}

func (s *Source) remember(made *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stream = made
}

func (s *Source) forget(made *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stream == made {
		s.stream = nil
	}
}
