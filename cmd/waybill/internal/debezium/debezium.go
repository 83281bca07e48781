// Package debezium writes the configuration of a Debezium connector that sends
// the events of an outbox as waybill's consumers read them.
package debezium

import (
	"cmp"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"net"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"

	"github.com/waybillhq/waybill"
)

// Outbox is what a connector is to read.
type Outbox struct {
	Kind   string // "postgres" or "mysql"
	DSN    string // empty: places are left to be filled in
	Schema string // of the table; empty: the usual one of the database
	Table  string
	Cut    int64  // the events above it are the connector's
	Kafka  string // addresses, for the connector's own notes; empty: to be filled in
	// Partitions of topics that the connector makes.
	Partitions int
}

// Password stands where the connector's password belongs. Kafka Connect puts the
// variable in, with the provider "env" in the worker's configuration.
const Password = "${env:WAYBILL_DATABASE_PASSWORD}"

// placeholder stands for what is not known.
func placeholder(what string) string { return "<" + what + ">" }

// Connector returns the configuration of a connector of this name.
func Connector(name string, o *Outbox) (map[string]string, error) {
	config := router(o)
	config["topic.prefix"] = name
	var err error
	switch o.Kind {
	case "postgres":
		err = addPostgres(config, name, o)
	case "mysql":
		err = addMySQL(config, name, o)
	default:
		err = &waybill.Error{
			Op: "debezium-config", Key: o.Kind, Err: errors.New("there is no connector for this kind of database that was tried"),
			Hint: "known: postgres, mysql",
		}
	}
	return config, err
}

// router returns what both databases have in common: the outbox event router
// with waybill's columns, and records like those of a relay in the raw format.
func router(o *Outbox) map[string]string {
	const transform = "transforms.outbox."
	headers := []string{
		"event_type:header:eventType", "event_version:header:eventVersion", "tenant_id:header:tenantId",
		"aggregate_type:header:aggregateType", "aggregate_id:header:aggregateId", "aggregate_version:header:aggregateVersion",
		"occurred_at:header:occurredAt", "content_type:header:content-type", "headers:header:waybill-headers",
	}
	return map[string]string{
		"tasks.max": "1",
		// Only insertions are events; rows that a cleanup deletes are not.
		"skipped.operations": "u,d,t", "tombstones.on.delete": "false",
		// Four further headers would tell of the connector and not of the event.
		"extended.headers.enabled": "false",
		"key.converter":            "org.apache.kafka.connect.storage.StringConverter",
		// Payloads go as they are; a heartbeat is no payload and becomes JSON.
		"value.converter":                                        "io.debezium.converters.BinaryDataConverter",
		"value.converter.delegate.converter.type":                "org.apache.kafka.connect.json.JsonConverter",
		"value.converter.delegate.converter.type.schemas.enable": "false",
		// Within this time an idle table lets the database forget its log.
		"heartbeat.interval.ms":                     "10000",
		"topic.creation.default.partitions":         strconv.Itoa(o.Partitions),
		"topic.creation.default.replication.factor": "-1",
		"transforms":                                           "outbox",
		transform + "type":                                     "io.debezium.transforms.outbox.EventRouter",
		transform + "table.field.event.id":                     "event_id",
		transform + "table.field.event.key":                    "event_key",
		transform + "table.field.event.type":                   "event_type",
		transform + "table.field.event.payload":                "payload",
		transform + "route.by.field":                           "topic",
		transform + "route.topic.replacement":                  "${routedByValue}",
		transform + "table.fields.additional.placement":        strings.Join(headers, ","),
		transform + "table.fields.additional.error.on.missing": "true",
		"snapshot.mode":                                        "initial",
	}
}

func addPostgres(config map[string]string, name string, o *Outbox) error {
	host, port, user, database := placeholder("host"), "5432", placeholder("user"), placeholder("database")
	if o.DSN != "" {
		c, err := pgx.ParseConfig(o.DSN)
		if err != nil {
			return &waybill.Error{Op: "debezium-config", Key: "store.dsn", Err: errors.New("it is not understood")}
		}
		host, port, user, database = c.Host, strconv.Itoa(int(c.Port)), c.User, c.Database
	}
	schema := cmp.Or(o.Schema, "public")
	words := strings.ToLower(notWord.ReplaceAllString(name, "_"))
	maps.Copy(config, map[string]string{
		"connector.class":   "io.debezium.connector.postgresql.PostgresConnector",
		"database.hostname": host, "database.port": port, "database.user": user, "database.password": Password, "database.dbname": database,
		"plugin.name": "pgoutput", "slot.name": words, "publication.name": words,
		// It is made for this table alone; made before, with publish = 'insert', it costs less.
		"publication.autocreate.mode": "filtered",
	})
	return include(config, "table.include.list", schema, o.Table, quoteWith(`"`, schema)+"."+quoteWith(`"`, o.Table), o.Cut)
}

var notWord = regexp.MustCompile(`[^A-Za-z0-9_]+`)

func addMySQL(config map[string]string, name string, o *Outbox) error {
	host, port, user, database := placeholder("host"), "3306", placeholder("user"), placeholder("database")
	if o.DSN != "" {
		var err error
		if host, port, user, database, err = mysqlPlace(o.DSN); err != nil {
			return err
		}
	}
	schema := cmp.Or(o.Schema, database)
	maps.Copy(config, map[string]string{
		"connector.class":   "io.debezium.connector.mysql.MySqlConnector",
		"database.hostname": host, "database.port": port, "database.user": user, "database.password": Password,
		// A replica's number that no other has.
		"database.server.id":                                        strconv.FormatUint(uint64(crc32.ChecksumIEEE([]byte(name))%2_000_000_000+100_000), 10),
		"database.include.list":                                     regexp.QuoteMeta(schema),
		"include.schema.changes":                                    "false",
		"schema.history.internal.kafka.bootstrap.servers":           cmp.Or(o.Kafka, placeholder("kafka")),
		"schema.history.internal.kafka.topic":                       name + ".schema-history",
		"schema.history.internal.store.only.captured.tables.ddl":    "true",
		"schema.history.internal.store.only.captured.databases.ddl": "true",
	})
	return include(config, "table.include.list", schema, o.Table, quoteWith("`", schema)+"."+quoteWith("`", o.Table), o.Cut)
}

// mysqlPlace takes a URL or a DSN of the driver apart.
func mysqlPlace(dsn string) (host, port, user, database string, err error) {
	wrong := &waybill.Error{Op: "debezium-config", Key: "store.dsn", Err: errors.New("it is not understood")}
	var address string
	if strings.Contains(dsn, "://") {
		u, err := url.Parse(dsn)
		if err != nil {
			return "", "", "", "", wrong
		}
		address, user, database = u.Host, u.User.Username(), strings.TrimPrefix(u.Path, "/")
	} else {
		c, err := mysql.ParseDSN(dsn)
		if err != nil {
			return "", "", "", "", wrong
		}
		address, user, database = c.Addr, c.User, c.DBName
	}
	if host, port, err = net.SplitHostPort(address); err != nil {
		host, port = address, "3306"
	}
	return host, port, user, database, nil
}

// include names the table, and what of it the connector begins with.
func include(config map[string]string, key, schema, table, quoted string, cut int64) error {
	if strings.ContainsAny(schema+table, ",") {
		return &waybill.Error{Op: "debezium-config", Key: table, Err: errors.New("the connector cannot name a table whose name has a comma")}
	}
	config[key] = regexp.QuoteMeta(schema) + `\.` + regexp.QuoteMeta(table)
	config["snapshot.select.statement.overrides"] = schema + "." + table
	config["snapshot.select.statement.overrides."+schema+"."+table] = fmt.Sprintf("SELECT * FROM %s WHERE id > %d ORDER BY id", quoted, cut)
	return nil
}

func quoteWith(mark, name string) string {
	return mark + strings.ReplaceAll(name, mark, mark+mark) + mark
}
