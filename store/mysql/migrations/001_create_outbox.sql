-- Facts. One INSERT of event_id, aggregate_type, aggregate_id, event_type,
-- topic and payload is a complete event. An event_key left empty means
-- aggregate_id. Headers are a JSON object, kept as text so that its bytes stay
-- as they are.
CREATE TABLE IF NOT EXISTS {event} (
    id                bigint NOT NULL AUTO_INCREMENT PRIMARY KEY,
    event_id          varchar(128) NOT NULL CHECK (LENGTH(event_id) BETWEEN 1 AND 128),
    tenant_id         varchar(255) NOT NULL DEFAULT '' CHECK (LENGTH(tenant_id) <= 255),
    aggregate_type    varchar(128) NOT NULL DEFAULT '' CHECK (LENGTH(aggregate_type) <= 128),
    aggregate_id      varchar(255) NOT NULL DEFAULT '' CHECK (LENGTH(aggregate_id) <= 255),
    aggregate_version bigint NULL CHECK (aggregate_version >= 0),
    event_type        varchar(128) NOT NULL CHECK (LENGTH(event_type) BETWEEN 1 AND 128),
    event_version     int NOT NULL DEFAULT 1 CHECK (event_version >= 0),
    topic             varchar(249) NOT NULL CHECK (LENGTH(topic) BETWEEN 1 AND 249),
    event_key         varchar(255) NOT NULL DEFAULT '' CHECK (LENGTH(event_key) <= 255),
    payload           longblob NOT NULL,
    content_type      varchar(255) NOT NULL DEFAULT 'application/json' CHECK (LENGTH(content_type) <= 255),
    headers           longtext NULL CHECK (JSON_VALID(headers) AND JSON_TYPE(headers) = 'OBJECT'),
    occurred_at       datetime(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    created_at        datetime(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    UNIQUE KEY event_id (event_id),
    KEY aggregate (aggregate_id),
    KEY event_key (event_key),
    CHECK (event_key <> '' OR aggregate_id <> '')
) {options};

-- The queue. An event is unsettled exactly while it has a row here. The index
-- hot has what a walk over it needs to know of rows that it passes over.
CREATE TABLE IF NOT EXISTS {pending} (
    id            bigint NOT NULL PRIMARY KEY CHECK (id > 0),
    key_hash      bigint NOT NULL,
    topic_hash    bigint NOT NULL,
    lane          tinyint NOT NULL CHECK (lane BETWEEN 0 AND 63),
    status        varchar(7) NOT NULL DEFAULT 'PENDING' CHECK (status IN ('PENDING', 'DEAD')),
    parked        tinyint(1) NOT NULL DEFAULT 0 CHECK (parked IN (0, 1)),
    skip          tinyint(1) NOT NULL DEFAULT 0 CHECK (skip IN (0, 1)),
    retry_count   int NOT NULL DEFAULT 0,
    next_retry_at datetime(6) NULL,
    first_error   text NULL,
    last_error    text NULL,
    updated_at    datetime(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    KEY hot (lane, parked, id, topic_hash, key_hash),
    KEY due (lane, next_retry_at),
    KEY by_key (key_hash, id)
) {options};

-- Receipts: how an event was settled. For people, cleanup and reconciliation.
CREATE TABLE IF NOT EXISTS {receipt} (
    id           bigint NOT NULL PRIMARY KEY,
    event_id     varchar(128) NOT NULL,
    outcome      varchar(7) NOT NULL CHECK (outcome IN ('SENT', 'SKIPPED')),
    via          varchar(32) NOT NULL DEFAULT '',
    published_at datetime(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    published_to varchar(1024) NOT NULL DEFAULT '',
    note         text NOT NULL,
    KEY published (published_at)
) {options};

-- Events that a cleanup took out of the way, with their receipts.
CREATE TABLE IF NOT EXISTS {archive} (
    id                bigint NOT NULL PRIMARY KEY,
    event_id          varchar(128) NOT NULL,
    tenant_id         varchar(255) NOT NULL,
    aggregate_type    varchar(128) NOT NULL,
    aggregate_id      varchar(255) NOT NULL,
    aggregate_version bigint NULL,
    event_type        varchar(128) NOT NULL,
    event_version     int NOT NULL,
    topic             varchar(249) NOT NULL,
    event_key         varchar(255) NOT NULL,
    payload           longblob NOT NULL,
    content_type      varchar(255) NOT NULL,
    headers           longtext NULL,
    occurred_at       datetime(6) NOT NULL,
    created_at        datetime(6) NOT NULL,
    outcome           varchar(7) NOT NULL,
    via               varchar(32) NOT NULL,
    published_at      datetime(6) NOT NULL,
    published_to      varchar(1024) NOT NULL,
    note              text NOT NULL,
    archived_at       datetime(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    KEY event_id (event_id)
) {options};

-- One row for each lane, made now and never removed.
CREATE TABLE IF NOT EXISTS {lease} (
    lane       tinyint NOT NULL PRIMARY KEY CHECK (lane BETWEEN 0 AND 63),
    owner      varchar(128) NOT NULL DEFAULT '',
    fence      bigint NOT NULL DEFAULT 0,
    expires_at datetime(6) NOT NULL DEFAULT '1970-01-01'
) {options};

INSERT IGNORE INTO {lease} (lane)
WITH RECURSIVE lanes (lane) AS (SELECT 0 UNION ALL SELECT lane + 1 FROM lanes WHERE lane < 63)
SELECT lane FROM lanes;

CREATE TABLE IF NOT EXISTS {relay} (
    owner      varchar(128) NOT NULL PRIMARY KEY,
    host       varchar(255) NOT NULL,
    mode       varchar(16) NOT NULL,
    started_at datetime(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    expires_at datetime(6) NOT NULL,
    report     mediumtext NULL
) {options};

-- The picture of one table with a status column. It has its reader's rights, so
-- that it works on when the account that made it is gone.
CREATE OR REPLACE SQL SECURITY INVOKER VIEW {status} AS
SELECT e.id, e.event_id, e.tenant_id, e.aggregate_type, e.aggregate_id, e.aggregate_version, e.event_type,
       e.event_version, e.topic, e.event_key, e.payload, e.content_type, e.headers, e.occurred_at, e.created_at,
       COALESCE(p.status, r.outcome, 'PENDING') AS status,
       p.id IS NOT NULL AS queued,
       COALESCE(p.retry_count, 0) AS retry_count,
       p.next_retry_at,
       CASE WHEN p.id IS NULL THEN r.published_at END AS published_at
FROM {event} e
LEFT JOIN {pending} p ON p.id = e.id
LEFT JOIN {receipt} r ON r.id = e.id;
