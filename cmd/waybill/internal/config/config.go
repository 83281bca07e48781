// Package config is the configuration of the waybill command: a YAML file,
// then WAYBILL_* variables, then flags.
package config

import (
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/relay"
	"github.com/waybillhq/waybill/store"
)

// Config is the whole configuration. The names of its fields in YAML, joined
// by '_' in capitals after WAYBILL_, are the variables that overlay it:
// store.dsn is WAYBILL_STORE_DSN.
type Config struct {
	Store   Store            `yaml:"store"`
	Broker  Broker           `yaml:"broker"`
	Relay   Relay            `yaml:"relay"`
	CDC     CDC              `yaml:"cdc"`
	Inboxes map[string]Inbox `yaml:"inboxes"`
	Status  Status           `yaml:"status"`
	Cleanup Cleanup          `yaml:"cleanup"`
	Serve   Serve            `yaml:"serve"`
	Log     Log              `yaml:"log"`

	Reconcile Reconcile `yaml:"reconcile"`
}

// Store says where the outbox is.
type Store struct {
	Kind      string `yaml:"kind"` // "sqlite", "postgres", "mysql" or "mariadb"
	DSN       string `yaml:"dsn" secret:"dsn"`
	DSNFile   string `yaml:"dsn_file" path:"file"`
	NoTrigger bool   `yaml:"no_trigger"`
	Head      bool   `yaml:"head"`
	Names     Names  `yaml:"names"`
}

// Inbox says where a consumer's tables are, for everything but the consumer itself.
type Inbox struct {
	Kind    string `yaml:"kind"`
	DSN     string `yaml:"dsn" secret:"dsn"`
	DSNFile string `yaml:"dsn_file" path:"file"`
	Names   Names  `yaml:"names"`
}

// Names are the tables' names; they convert to [store.Names].
type Names struct {
	Schema   string `yaml:"schema"`
	Event    string `yaml:"event"`
	Pending  string `yaml:"pending"`
	Receipt  string `yaml:"receipt"`
	Archive  string `yaml:"archive"`
	Status   string `yaml:"status"`
	Lease    string `yaml:"lease"`
	Relay    string `yaml:"relay"`
	Meta     string `yaml:"meta"`
	Audit    string `yaml:"audit"`
	Consumed string `yaml:"consumed"`
	Key      string `yaml:"key"`
	Progress string `yaml:"progress"`
	Held     string `yaml:"held"`
	Reader   string `yaml:"reader"`
	Member   string `yaml:"member"`
	Effect   string `yaml:"effect"`
	Horizon  string `yaml:"horizon"`
	Head     string `yaml:"head"`
	Position string `yaml:"position"`
}

// Broker says where events go.
type Broker struct {
	Kind       string `yaml:"kind"` // "nats", "kafka" or "embedded"
	URL        string `yaml:"url" secret:"url"`
	URLFile    string `yaml:"url_file" path:"file"`
	Dir        string `yaml:"dir" path:"dir"` // embedded: where its streams are kept
	Port       int    `yaml:"port"`           // embedded: on 127.0.0.1
	SyncAlways bool   `yaml:"sync_always"`    // embedded
	// For topics that are made from here, and for the client.
	Prefix          string        `yaml:"prefix"`
	Partitions      int           `yaml:"partitions"`
	Replicas        int           `yaml:"replicas"`
	Retention       time.Duration `yaml:"retention"`
	CredentialsFile string        `yaml:"credentials_file"`
}

// Relay mirrors [relay.Config].
type Relay struct {
	Mode           string           `yaml:"mode"` // "poll" or "cdc"
	Host           string           `yaml:"host"`
	LeaseTTL       time.Duration    `yaml:"lease_ttl"`
	RenewEvery     time.Duration    `yaml:"renew_every"`
	Grace          time.Duration    `yaml:"grace"`
	FetchBatch     int              `yaml:"fetch_batch"`
	PublishBatch   int              `yaml:"publish_batch"`
	Concurrency    int              `yaml:"concurrency"`
	PublishTimeout time.Duration    `yaml:"publish_timeout"`
	PollBusy       time.Duration    `yaml:"poll_busy"`
	PollIdle       time.Duration    `yaml:"poll_idle"`
	SweepEvery     time.Duration    `yaml:"sweep_every"`
	MaxAttempts    int              `yaml:"max_attempts"`
	BackoffMin     time.Duration    `yaml:"backoff_min"`
	BackoffMax     time.Duration    `yaml:"backoff_max"`
	MaxRows        int              `yaml:"max_rows"`
	MaxBytes       int              `yaml:"max_bytes"`
	Forget         bool             `yaml:"forget"`
	Default        Topic            `yaml:"default"`
	Topics         map[string]Topic `yaml:"topics"`
}

// CDC is how the database's own log is read. Each database takes what it knows.
type CDC struct {
	DSN         string        `yaml:"dsn" secret:"dsn"`
	DSNFile     string        `yaml:"dsn_file" path:"file"`
	Slot        string        `yaml:"slot"`        // postgres
	Publication string        `yaml:"publication"` // postgres
	Failover    bool          `yaml:"failover"`    // postgres 17 and later
	ServerID    int           `yaml:"server_id"`   // mysql and mariadb
	Heartbeat   time.Duration `yaml:"heartbeat"`
}

// Topic mirrors [relay.TopicConfig].
type Topic struct {
	Format string `yaml:"format"`
	OnDead string `yaml:"on_dead"`
}

// Status says what counts as an alarm.
type Status struct {
	MaxPendingAge time.Duration `yaml:"max_pending_age"`
}

// Cleanup says what may go, and how fast. 0 means the default everywhere.
type Cleanup struct {
	Off            bool          `yaml:"off"` // "waybill serve" runs none
	Retention      time.Duration `yaml:"retention"`
	InboxRetention Age           `yaml:"inbox_retention"`
	Every          time.Duration `yaml:"every"`
	Batch          int           `yaml:"batch"`
	Pause          time.Duration `yaml:"pause"`
	Archive        bool          `yaml:"archive"`
}

// Serve is what "waybill serve" offers beside the relay.
type Serve struct {
	Listen    string `yaml:"listen"`
	MaxTopics int    `yaml:"max_topics"` // that metrics tell apart
}

// Reconcile is what "waybill serve" compares beside the relay.
type Reconcile struct {
	Checks string `yaml:"checks" path:"file"` // a file of checks
}

// Log says how the command reports what it does.
type Log struct {
	Level  string `yaml:"level"`  // "debug", "info", "warn", "error"
	Format string `yaml:"format"` // "auto", "text", "json"
}

// Store returns the tables' names for an adapter.
func (n Names) Store() store.Names { return store.Names(n) }

// Config returns the relay's configuration, without hooks and logger.
func (r *Relay) Config() *relay.Config {
	c := &relay.Config{
		Mode: r.Mode, Host: r.Host, LeaseTTL: r.LeaseTTL, RenewEvery: r.RenewEvery, Grace: r.Grace,
		FetchBatch: r.FetchBatch, PublishBatch: r.PublishBatch, Concurrency: r.Concurrency, PublishTimeout: r.PublishTimeout,
		PollBusy: r.PollBusy, PollIdle: r.PollIdle, SweepEvery: r.SweepEvery,
		MaxAttempts: r.MaxAttempts, BackoffMin: r.BackoffMin, BackoffMax: r.BackoffMax,
		MaxRows: r.MaxRows, MaxBytes: r.MaxBytes, Forget: r.Forget,
		Default: r.Default.config(), Topics: make(map[string]relay.TopicConfig, len(r.Topics)),
	}
	for name, topic := range r.Topics {
		c.Topics[name] = topic.config()
	}
	return c
}

func (t Topic) config() relay.TopicConfig {
	return relay.TopicConfig{Format: waybill.Format(t.Format), OnDead: relay.OnDead(t.OnDead)}
}
