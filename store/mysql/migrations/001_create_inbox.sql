-- What each group has settled. The pair of group and id is what makes an
-- effect happen once.
CREATE TABLE IF NOT EXISTS {consumed} (
    consumer_group    varchar(128) NOT NULL,
    event_id          varchar(384) NOT NULL,
    event_type        varchar(255) NOT NULL,
    tenant_id         varchar(255) NOT NULL,
    aggregate_type    varchar(255) NOT NULL,
    aggregate_id      varchar(255) NOT NULL,
    aggregate_version bigint NULL,
    outcome           varchar(7) NOT NULL CHECK (outcome IN ('APPLIED', 'STALE', 'SKIPPED')),
    topic             varchar(249) NOT NULL,
    `partition`       int NOT NULL,
    position          bigint NOT NULL,
    received_at       datetime(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    consumed_at       datetime(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    duplicates        bigint NOT NULL DEFAULT 0,
    last_duplicate_at datetime(6) NULL,
    PRIMARY KEY (consumer_group, event_id),
    KEY position (consumer_group, topic, `partition`, position),
    KEY age (consumer_group, consumed_at)
) {options};

-- One row for each key that was ever held: what paths that touch a key's held
-- events lock first.
CREATE TABLE IF NOT EXISTS {key} (
    consumer_group varchar(128) NOT NULL,
    topic          varchar(249) NOT NULL,
    event_key      varchar(384) NOT NULL,
    PRIMARY KEY (consumer_group, topic, event_key)
) {options};

CREATE TABLE IF NOT EXISTS {progress} (
    consumer_group varchar(128) NOT NULL,
    tenant_id      varchar(255) NOT NULL,
    aggregate_type varchar(128) NOT NULL,
    aggregate_id   varchar(255) NOT NULL,
    version        bigint NOT NULL,
    event_id       varchar(384) NOT NULL,
    updated_at     datetime(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    PRIMARY KEY (consumer_group, tenant_id, aggregate_type, aggregate_id)
) {options};

-- Events that a group keeps aside, with the record as it came.
CREATE TABLE IF NOT EXISTS {held} (
    seq               bigint NOT NULL AUTO_INCREMENT PRIMARY KEY,
    consumer_group    varchar(128) NOT NULL,
    event_id          varchar(384) NOT NULL,
    topic             varchar(249) NOT NULL,
    event_key         varchar(384) NOT NULL,
    `partition`       int NOT NULL,
    position          bigint NOT NULL,
    event_type        varchar(255) NOT NULL,
    tenant_id         varchar(255) NOT NULL,
    aggregate_type    varchar(255) NOT NULL,
    aggregate_id      varchar(255) NOT NULL,
    aggregate_version bigint NULL,
    state             varchar(7) NOT NULL CHECK (state IN ('WAITING', 'BLOCKED', 'RETRY', 'DEAD')),
    attempts          int NOT NULL,
    next_attempt_at   datetime(6) NULL,
    first_failed_at   datetime(6) NULL,
    last_failed_at    datetime(6) NULL,
    first_error       text NOT NULL,
    last_error        text NOT NULL,
    stack             text NOT NULL,
    record_id         text NOT NULL,
    record_topic      text NOT NULL,
    record_key        longblob NOT NULL,
    record_value      longblob NULL,
    record_headers    longtext NULL,
    held_at           datetime(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    dlt_sent_at       datetime(6) NULL,
    UNIQUE KEY event_id (consumer_group, event_id),
    KEY event_key (consumer_group, topic, event_key, seq),
    KEY state (consumer_group, state, next_attempt_at),
    KEY aggregate (consumer_group, aggregate_id, aggregate_version)
) {options};

-- Who reads which partition, how the reader before stopped, and the event that
-- was being handled alone.
CREATE TABLE IF NOT EXISTS {reader} (
    consumer_group varchar(128) NOT NULL,
    topic          varchar(249) NOT NULL,
    `partition`    int NOT NULL,
    owner          varchar(128) NOT NULL DEFAULT '',
    fence          bigint NOT NULL DEFAULT 0,
    expires_at     datetime(6) NOT NULL DEFAULT '1970-01-01',
    clean          tinyint(1) NOT NULL DEFAULT 1,
    event_id       varchar(384) NOT NULL DEFAULT '',
    tries          int NOT NULL DEFAULT 0,
    PRIMARY KEY (consumer_group, topic, `partition`)
) {options};

CREATE TABLE IF NOT EXISTS {member} (
    consumer_group varchar(128) NOT NULL,
    owner          varchar(128) NOT NULL,
    expires_at     datetime(6) NOT NULL,
    PRIMARY KEY (consumer_group, owner)
) {options};
