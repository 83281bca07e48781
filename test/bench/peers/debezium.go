package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// connector is Debezium over one database.
type connector struct {
	connect string // URL of Kafka Connect
	pid     int    // its process
	name    string
	slot    string
	site    *site
}

// How Debezium drains: with the larger batches that its documentation gives for
// throughput.
var draining = map[string]string{
	"max.batch.size": "8192", "max.queue.size": "32768", "poll.interval.ms": "5",
	"producer.override.linger.ms": "5", "producer.override.batch.size": "262144",
	"producer.override.buffer.memory": "67108864", "producer.override.compression.type": "lz4",
}

// How it reacts, asked for the least delay that does not poll for ever.
func reacting(interval time.Duration) map[string]string {
	return map[string]string{"poll.interval.ms": strconv.FormatInt(interval.Milliseconds(), 10), "producer.override.linger.ms": "0"}
}

// newConnector starts the connector, and returns when it reads the log. With a
// broker given, it sends there and not where Connect does.
func newConnector(ctx context.Context, o *options, s *site, broker string, settings map[string]string) (*connector, error) {
	c := &connector{connect: o.connect, pid: o.connectPID, name: s.name, slot: s.name, site: s}
	u, err := url.Parse(s.dsn)
	if err != nil {
		return nil, err
	}
	password, _ := u.User.Password()
	config := map[string]string{
		"tasks.max":         "1",
		"database.hostname": u.Hostname(), "database.port": u.Port(), "database.user": u.User.Username(), "database.password": password,
		"topic.prefix": s.name, "snapshot.mode": "no_data", "tombstones.on.delete": "false",
		"extended.headers.enabled": "false",
		"key.converter":            "org.apache.kafka.connect.storage.StringConverter",
		"value.converter":          "org.apache.kafka.connect.converters.ByteArrayConverter",
		"transforms":               "outbox", "transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter",
		"transforms.outbox.table.field.event.id": "event_id", "transforms.outbox.table.field.event.key": "event_key",
		"transforms.outbox.table.field.event.type": "event_type", "transforms.outbox.table.field.event.payload": "payload",
		"transforms.outbox.route.by.field": "topic", "transforms.outbox.route.topic.replacement": "${routedByValue}",
		"transforms.outbox.table.fields.additional.placement": "event_type:header:eventType,aggregate_type:header:aggregateType,aggregate_id:header:aggregateId,aggregate_version:header:aggregateVersion",
	}
	if s.kind == kindMySQL {
		maps.Copy(config, c.readBinlog(o))
	} else {
		if _, err := s.pool.Exec(ctx, `CREATE PUBLICATION peers FOR TABLE outbox_event WITH (publish = 'insert')`); err != nil {
			return nil, err
		}
		maps.Copy(config, c.readWAL())
	}
	maps.Copy(config, settings)
	if broker != "" {
		config["producer.override.bootstrap.servers"] = broker
	}
	if err := c.call(ctx, http.MethodPut, "/config", config); err != nil {
		return nil, err
	}
	return c, c.awaitReading(ctx)
}

func (c *connector) readWAL() map[string]string {
	return map[string]string{
		"connector.class": "io.debezium.connector.postgresql.PostgresConnector",
		"database.dbname": c.site.name, "table.include.list": "public.outbox_event", "plugin.name": "pgoutput", "slot.name": c.slot,
		"publication.name": "peers", "publication.autocreate.mode": "disabled",
	}
}

func (c *connector) readBinlog(o *options) map[string]string {
	return map[string]string{
		"connector.class":       "io.debezium.connector.mysql.MySqlConnector",
		"database.include.list": c.site.name, "table.include.list": c.site.name + ".outbox_event", "include.schema.changes": "false",
		"database.server.id":                              strconv.Itoa(100_000 + int(crc32.ChecksumIEEE([]byte(c.name))%1_000_000)),
		"schema.history.internal.kafka.bootstrap.servers": o.kafka, "schema.history.internal.kafka.topic": c.history(),
		"schema.history.internal.store.only.captured.tables.ddl": "true", "schema.history.internal.store.only.captured.databases.ddl": "true",
	}
}

// history is the topic in which the connector for MySQL keeps the tables' shapes.
func (c *connector) history() string { return c.name + ".schema-history" }

func (c *connector) call(ctx context.Context, method, path string, body any) error {
	_, err := c.ask(ctx, method, path, body)
	return err
}

func (c *connector) ask(ctx context.Context, method, path string, body any) ([]byte, error) {
	var content io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		content = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, c.connect+"/connectors/"+c.name+path, content)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode >= 300 {
		err = fmt.Errorf("%s %s: %s: %.300s", method, path, response.Status, text)
	}
	return text, err
}

// Who reads the log. On MySQL nothing tells of which database, but there is one
// reader at a time.
const (
	readersOfWALSQL    = `SELECT COUNT(*) FROM pg_replication_slots WHERE active AND database = current_database()`
	readersOfBinlogSQL = `SELECT COUNT(*) FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'`
)

// readers counts who reads the log.
func (s *site) readers(ctx context.Context) (int, error) {
	if s.kind == kindMySQL {
		return s.number(ctx, readersOfBinlogSQL)
	}
	return s.number(ctx, readersOfWALSQL)
}

// awaitReading waits until the connector reads the log.
func (c *connector) awaitReading(ctx context.Context) error {
	for deadline := now().Add(time.Minute); ; {
		if n, err := c.site.readers(ctx); err == nil && n > 0 {
			return nil
		}
		if now().After(deadline) {
			state, err := c.ask(ctx, http.MethodGet, "/status", nil)
			return errors.Join(fmt.Errorf("the connector does not read the log: %.600s", state), err)
		}
		if !pause(ctx, 50*time.Millisecond) {
			return ctx.Err()
		}
	}
}

func (c *connector) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	err := c.call(ctx, http.MethodDelete, "", nil)
	// The log is released when the connection of the task has ended.
	for deadline := now().Add(20 * time.Second); now().Before(deadline); {
		if n, err := c.site.readers(ctx); err == nil && n == 0 {
			break
		}
		if !pause(ctx, 100*time.Millisecond) {
			break
		}
	}
	if c.site.kind == kindPostgres {
		_, dropped := c.site.pool.Exec(ctx, `SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = $1`, c.slot)
		err = errors.Join(err, dropped)
	}
	return err
}

// drain gives the connector all events at once: of a transaction it is told at
// its commit, so none of them has been read before.
func (c *connector) drain(ctx context.Context, t *topics, from *source, n int) (*outcome, error) {
	before, err := t.count(ctx, from.topic)
	if err != nil {
		return nil, err
	}
	commit, err := c.site.insert(ctx, from, n)
	if err != nil {
		return nil, err
	}
	cpu, err := processCPU(c.pid)
	if err != nil {
		return nil, err
	}
	if err := commit(); err != nil {
		return nil, err
	}
	// Its time begins with the first record: the database decodes before that.
	if err := t.await(ctx, from.topic, before+1, time.Minute); err != nil {
		return nil, err
	}
	began := now()
	if err := t.await(ctx, from.topic, before+n, 3*time.Minute); err != nil {
		return nil, err
	}
	seconds := since(began)
	after, err := processCPU(c.pid)
	return &outcome{Events: n, Seconds: seconds, CPU: after - cpu, PeakMB: peakMB(strconv.Itoa(c.pid))}, err
}
