package kafka_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"log/slog"
	mathbig "math/big"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
	"github.com/waybillhq/waybill/broker/kafka"
	"github.com/waybillhq/waybill/internal/testenv"
)

func TestDeniedTopicStopsOnlyItself(t *testing.T) {
	brokers := []string{testenv.Kafka4(t)} // its anonymous users may do all
	root := open(t, &kafka.Config{Brokers: brokers})
	hidden, readOnly, good := newTopic(t, root, 2), newTopic(t, root, 2), newTopic(t, root, 2)
	// Who is not named by a rule of a topic has no rights there.
	admin(t, brokers, func(ctx context.Context, a *kadm.Client) error {
		nobody := kadm.NewACLs().Topics(hidden).Allow("User:nobody").AllowHosts("*").ResourcePatternType(kadm.ACLPatternLiteral).Operations(kmsg.ACLOperationAll)
		reader := kadm.NewACLs().Topics(readOnly).Allow("User:waybill").AllowHosts("*").ResourcePatternType(kadm.ACLPatternLiteral).Operations(kmsg.ACLOperationRead)
		first, err := a.CreateACLs(ctx, nobody)
		second, err2 := a.CreateACLs(ctx, reader)
		err = errors.Join(err, err2)
		for _, result := range append(first, second...) {
			err = errors.Join(err, result.Err)
		}
		return err
	})
	for _, mechanism := range []string{kafka.Plain, kafka.ScramSHA512} {
		t.Run(mechanism, func(t *testing.T) {
			b := open(t, &kafka.Config{
				Brokers: []string{testenv.Kafka4SASL(t)},
				SASL:    &kafka.SASL{Mechanism: mechanism, User: "waybill", Password: "waybill"},
			})
			for _, denied := range []string{hidden, readOnly} {
				errs := publish(t, b, record(denied, "a", "d1"), record(good, "a", "g1"), record(denied, "a", "d2"), record(good, "a", "g2"))
				if got, want := classesOf(errs), []string{"topic unavailable", "ok", "predecessor", "ok"}; !slices.Equal(got, want) {
					t.Errorf("got answers %v, want %v: %v", got, want, errs)
				}
				if errs[0] != nil && !strings.Contains(errs[0].Error(), denied) {
					t.Errorf("the error %q does not name the topic", errs[0])
				}
			}
			if _, err := b.Subscribe(t.Context(), broker.SubscribeRequest{Group: "group-" + waybill.NewID(), Topics: []string{hidden}}); classOf(err) != "topic unavailable" {
				t.Errorf("subscribe: got %v, want topic unavailable", err)
			}
			subscribe(t, b, "group-"+waybill.NewID(), readOnly)
		})
	}
}

func TestCredentialsAreCheckedAndNotShown(t *testing.T) {
	const secret = "s3cret-passw0rd"
	_, brokers := startFake(t, kfake.EnableSASL(), kfake.Superuser(kafka.ScramSHA256, "waybill", secret), kfake.Superuser(kafka.Plain, "plain", secret))
	for _, test := range []struct {
		name string
		sasl *kafka.SASL
		ok   bool
	}{
		{"scram", &kafka.SASL{Mechanism: kafka.ScramSHA256, User: "waybill", Password: secret}, true},
		{"plain", &kafka.SASL{Mechanism: kafka.Plain, User: "plain", Password: secret}, true},
		{"wrong password", &kafka.SASL{Mechanism: kafka.Plain, User: "plain", Password: secret + "x"}, false},
		{"wrong password of scram", &kafka.SASL{Mechanism: kafka.ScramSHA256, User: "waybill", Password: secret + "x"}, false},
		{"other mechanism", &kafka.SASL{Mechanism: kafka.ScramSHA512, User: "waybill", Password: secret}, false},
		{"anonymous", nil, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			var log lockedBuffer
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			b, err := kafka.Open(ctx, &kafka.Config{Brokers: brokers, SASL: test.sasl, Logger: slog.New(slog.NewTextHandler(&log, nil))})
			if (err == nil) != test.ok {
				t.Fatalf("got error %v", err)
			}
			if err == nil {
				topic := newTopic(t, b, 1)
				publishAll(t, b, record(topic, "a", "a1"))
				if err := b.Close(); err != nil {
					t.Error(err)
				}
				return
			}
			if text := err.Error() + log.String(); strings.Contains(text, secret) {
				t.Errorf("%q shows the password", text)
			}
		})
	}
}

func TestCredentialsThatAreTakenAwayStopTheBroker(t *testing.T) {
	cluster, brokers := startFake(t, kfake.EnableSASL(), kfake.Superuser(kafka.ScramSHA256, "waybill", "w"))
	between := newWire()
	b := open(t, &kafka.Config{Brokers: brokers, Dial: between.dial, SASL: &kafka.SASL{Mechanism: kafka.ScramSHA256, User: "waybill", Password: "w"}})
	topic := newTopic(t, b, 1)
	publishAll(t, b, record(topic, "a", "a1"))
	refuse := int16(36) // SASL authentication
	cluster.ControlKey(refuse, func(r kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		response := r.ResponseKind().(*kmsg.SASLAuthenticateResponse)
		response.ErrorCode = kerr.SaslAuthenticationFailed.Code
		return response, nil, true
	})
	between.stop(t) // connections end, and new ones are refused by the server
	between.start(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		errs := b.Publish(ctx, []waybill.Record{record(topic, "a", "a2")})
		if got := classOf(errs[0]); got == "broker unavailable" {
			break
		} else if got != "unknown" || ctx.Err() != nil {
			t.Fatalf("got %v, want broker unavailable", errs[0])
		}
	}
}

func TestTLSIsSpokenAndVerified(t *testing.T) {
	certificate, roots := selfSigned(t)
	_, brokers := startFake(t, kfake.TLS(&tls.Config{Certificates: []tls.Certificate{certificate}}))
	b := open(t, &kafka.Config{Brokers: brokers, TLS: &tls.Config{RootCAs: roots}})
	topic := newTopic(t, b, 1)
	publishAll(t, b, record(topic, "a", "a1"))
	readAll(t, b, topic, 1)
	for name, config := range map[string]*tls.Config{"unknown authority": {}, "no TLS": nil} {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		if b, err := kafka.Open(ctx, &kafka.Config{Brokers: brokers, TLS: config}); err == nil {
			_ = b.Close()
			t.Errorf("%s: the client connected", name)
		}
		cancel()
	}
}

func selfSigned(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: mathbig.NewInt(1), Subject: pkix.Name{CommonName: "fake"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(parsed)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, roots
}

type lockedBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

var _ broker.Checker = (*kafka.Broker)(nil)
