package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/waybillhq/waybill"
)

// Defaults of [Config].
const (
	DefaultPartitions     = 12
	DefaultMaxRecordBytes = 1_048_588
)

// Mechanisms of [SASL].
const (
	Plain       = "PLAIN"
	ScramSHA256 = "SCRAM-SHA-256"
	ScramSHA512 = "SCRAM-SHA-512"
)

// SASL identifies this client to the cluster.
type SASL struct {
	// Mechanism is [Plain], [ScramSHA256] or [ScramSHA512]. Default: the last.
	Mechanism      string
	User, Password string
}

// Config is how to use a Kafka cluster. Brokers is required, all else has
// defaults.
type Config struct {
	// Brokers are some brokers of the cluster, host:port, to ask for the others.
	Brokers []string
	// TLS is how to speak to the brokers; nil means without TLS.
	TLS *tls.Config
	// SASL identifies this client; nil means that it stays anonymous.
	SASL *SASL
	// ClientID names this client in the brokers' logs and quotas. Default:
	// "waybill".
	ClientID string
	// Compression of batches: "none", "gzip", "snappy", "lz4" or "zstd". Default:
	// "snappy".
	Compression string
	// MaxRecordBytes bounds a record, and a batch of records, before compression.
	// Where a topic's max.message.bytes is known and smaller, that counts. Default:
	// [DefaultMaxRecordBytes], as on a broker.
	MaxRecordBytes int
	// DeliveryTimeout is how long a record may be tried for before it has failed,
	// where the context of Publish does not end earlier. Default: 10 s.
	DeliveryTimeout time.Duration
	// ConnectTimeout bounds one attempt to connect. Default: 5 s.
	ConnectTimeout time.Duration
	// SessionTimeout is after what silence a member of a group has lost its
	// partitions. Default: 10 s.
	SessionTimeout time.Duration
	// RebalanceTimeout is how long the others of a group wait for a member that
	// handles records when partitions are to move. One that takes longer from one
	// Poll to the next loses its partitions. Default: 60 s.
	RebalanceTimeout time.Duration
	// Partitions is the number of partitions of a new topic that names none.
	// Default: [DefaultPartitions].
	Partitions int
	// Replicas is the replication factor of a new topic. Default: the cluster's.
	Replicas int
	// TopicConfig are settings of new topics, such as "retention.ms". A new topic
	// has message.timestamp.type=LogAppendTime unless it is given here, and
	// min.insync.replicas=2 where Replicas is 3 or more.
	TopicConfig map[string]string
	// Dial opens connections, for tunnels. Default: a plain dialer. TLS is added
	// to what it returns.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Events are hooks.
	Events Events
	// Logger takes what no error can tell: lost and regained connections, topics
	// that changed, positions that do not exist. Default: discards.
	Logger *slog.Logger
}

// Events are hooks, each of which may be nil. They must not block.
type Events struct {
	// PartitionsChanged is called when a topic in use was given more partitions,
	// and when a group finds that it was since it read the topic last.
	PartitionsChanged func(PartitionsChangedInfo)
	// PositionReset is called when a group's position in a partition does not
	// exist and reading goes on elsewhere.
	PositionReset func(PositionResetInfo)
}

// PartitionsChangedInfo says that keys belong to other partitions than before.
type PartitionsChangedInfo struct {
	// Group is the one whose positions tell of the number before. It is empty
	// where this process has seen the number change.
	Group       string
	Topic       string
	Before, Now int
}

func (i PartitionsChangedInfo) String() string {
	return fmt.Sprintf("topic %s has %d partitions, it had %d", i.Topic, i.Now, i.Before)
}

// PositionResetInfo says where reading goes on, and why.
type PositionResetInfo struct {
	Group, Topic string
	Partition    int32
	// Wanted is the position that should have been read next, Got the one that
	// was. Records between are lost when Got is greater, and come again when it is
	// smaller.
	Wanted, Got int64
}

func (i PositionResetInfo) String() string {
	what := "records are lost"
	if i.Got < i.Wanted {
		what = "records come again"
	}
	return fmt.Sprintf("group %s reads %s/%d on from %d instead of %d: %s", i.Group, i.Topic, i.Partition, i.Got, i.Wanted, what)
}

func (c *Config) withDefaults() (Config, error) {
	var out Config
	if c != nil {
		out = *c
	}
	orInt := func(value *int, other int) {
		if *value == 0 {
			*value = other
		}
	}
	orTime := func(value *time.Duration, other time.Duration) {
		if *value == 0 {
			*value = other
		}
	}
	orInt(&out.MaxRecordBytes, DefaultMaxRecordBytes)
	orInt(&out.Partitions, DefaultPartitions)
	orTime(&out.DeliveryTimeout, 10*time.Second)
	orTime(&out.ConnectTimeout, 5*time.Second)
	orTime(&out.SessionTimeout, 10*time.Second)
	orTime(&out.RebalanceTimeout, time.Minute)
	if out.ClientID == "" {
		out.ClientID = "waybill"
	}
	if out.Compression == "" {
		out.Compression = "snappy"
	}
	if out.Logger == nil {
		out.Logger = slog.New(slog.DiscardHandler)
	}
	if out.Dial == nil {
		out.Dial = (&net.Dialer{}).DialContext
	}
	if err := out.check(); err != nil {
		return out, &waybill.Error{Op: "configure kafka", Err: err}
	}
	return out, nil
}

func (c *Config) check() error {
	switch {
	case len(c.Brokers) == 0 || slices.Contains(c.Brokers, ""):
		return errors.New("brokers are required, host:port each")
	case c.MaxRecordBytes < 1024 || c.MaxRecordBytes > 1<<30:
		return fmt.Errorf("records of %d bytes: use 1024 to %d", c.MaxRecordBytes, 1<<30)
	case c.DeliveryTimeout < time.Millisecond || c.ConnectTimeout < time.Millisecond:
		return errors.New("the time to deliver or to connect is negative")
	case c.SessionTimeout < time.Second || c.RebalanceTimeout < time.Second:
		return errors.New("the session and a rebalance need a second or more")
	case c.Partitions < 0 || c.Replicas < 0 || c.Replicas > 1<<15-1:
		return errors.New("the number of partitions or replicas is out of range")
	}
	if _, err := c.codec(); err != nil {
		return err
	}
	_, err := c.mechanism()
	return err
}

func (c *Config) codec() (kgo.CompressionCodec, error) {
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	codec, ok := codecs[c.Compression]
	if !ok {
		return codec, fmt.Errorf("compression %q: use none, gzip, snappy, lz4 or zstd", c.Compression)
	}
	return codec, nil
}

// mechanism returns nil when there is no SASL.
func (c *Config) mechanism() (sasl.Mechanism, error) {
	if c.SASL == nil {
		return nil, nil
	}
	if c.SASL.User == "" {
		return nil, errors.New("SASL needs a user")
	}
	auth := scram.Auth{User: c.SASL.User, Pass: c.SASL.Password}
	switch c.SASL.Mechanism {
	case Plain:
		return plain.Auth{User: c.SASL.User, Pass: c.SASL.Password}.AsMechanism(), nil
	case ScramSHA256:
		return auth.AsSha256Mechanism(), nil
	case ScramSHA512, "":
		return auth.AsSha512Mechanism(), nil
	}
	return nil, fmt.Errorf("SASL mechanism %q: use %s, %s or %s", c.SASL.Mechanism, Plain, ScramSHA256, ScramSHA512)
}

// options are those of every client, whatever it is used for.
func (c *Config) options() []kgo.Opt {
	dial := c.Dial
	if c.TLS != nil {
		dial = dialTLS(c.Dial, c.TLS)
	}
	options := []kgo.Opt{
		kgo.SeedBrokers(c.Brokers...),
		kgo.ClientID(c.ClientID),
		kgo.Dialer(func(ctx context.Context, network, address string) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(ctx, c.ConnectTimeout)
			defer cancel()
			return dial(ctx, network, address)
		}),
		kgo.MetadataMinAge(metadataMinAge),
		kgo.RetryBackoffFn(backoff),
		kgo.DisableClientMetrics(),
	}
	if mechanism, _ := c.mechanism(); mechanism != nil {
		options = append(options, kgo.SASL(mechanism))
	}
	return options
}

func dialTLS(dial func(ctx context.Context, network, address string) (net.Conn, error), config *tls.Config) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		config := config.Clone()
		if config.ServerName == "" {
			if config.ServerName, _, err = net.SplitHostPort(address); err != nil {
				config.ServerName = address
			}
		}
		secured := tls.Client(conn, config)
		if err := secured.HandshakeContext(ctx); err != nil {
			_ = conn.Close()
			return nil, err
		}
		return secured, nil
	}
}

const (
	metadataMinAge = 100 * time.Millisecond
	backoffMin     = 50 * time.Millisecond
	backoffMax     = 500 * time.Millisecond
)

func backoff(tries int) time.Duration {
	return min(backoffMin<<min(max(tries-1, 0), 10), backoffMax)
}
