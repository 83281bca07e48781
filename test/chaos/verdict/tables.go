package verdict

import "strings"

// ShopTables are what a run adds to the producer's database: the accounts, and
// what triggers of its own tell of the relays. serial is how the database at
// hand declares a primary key that counts up.
func ShopTables(serial string) []string { return declare(serial, accountTable, writeTable, ownerTable) }

// BackTables are what a run adds to the consumers' database. No key keeps an
// effect from being there twice: that is for the consumers to do.
func BackTables(serial string) []string { return declare(serial, effectTable, modelTable) }

const accountTable = `
CREATE TABLE account (
    id      VARCHAR(64) NOT NULL PRIMARY KEY,
    version BIGINT NOT NULL DEFAULT 0,
    amount  BIGINT NOT NULL DEFAULT 0
)`

const writeTable = `
CREATE TABLE chaos_write (
    seq        {serial},
    event_row  BIGINT NOT NULL,
    who        VARCHAR(64) NOT NULL,
    owner      VARCHAR(255) NOT NULL,
    status     VARCHAR(16) NOT NULL,
    retries    INTEGER NOT NULL,
    last_error VARCHAR(255) NOT NULL,
    gone       INTEGER NOT NULL
)`

const ownerTable = `
CREATE TABLE chaos_owner (
    owner VARCHAR(255) NOT NULL PRIMARY KEY,
    who   VARCHAR(255) NOT NULL
)`

const effectTable = `
CREATE TABLE effect (
    seq            {serial},
    consumer_group VARCHAR(64) NOT NULL,
    event_id       VARCHAR(128) NOT NULL,
    of_key         VARCHAR(64) NOT NULL,
    version        BIGINT NOT NULL
)`

const modelTable = `
CREATE TABLE model (
    consumer_group VARCHAR(64) NOT NULL,
    of_key         VARCHAR(64) NOT NULL,
    version        BIGINT NOT NULL DEFAULT 0,
    events         BIGINT NOT NULL DEFAULT 0,
    total          BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (consumer_group, of_key)
)`

func declare(serial string, tables ...string) []string {
	for i := range tables {
		tables[i] = strings.ReplaceAll(tables[i], "{serial}", serial)
	}
	return tables
}
