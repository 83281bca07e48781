-- Calls to systems outside of this database, so that each is made once in
-- effect: DOING until the answer is known.
CREATE TABLE IF NOT EXISTS {effect} (
    consumer_group  varchar(128) NOT NULL,
    event_id        varchar(384) NOT NULL,
    name            varchar(64) NOT NULL,
    idempotency_key varchar(384) NOT NULL,
    idempotent      tinyint(1) NOT NULL,
    state           varchar(5) NOT NULL CHECK (state IN ('DOING', 'DONE')),
    owner           varchar(128) NOT NULL,
    until           datetime(6) NOT NULL,
    tries           int NOT NULL DEFAULT 1,
    result          longblob NULL,
    started_at      datetime(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    PRIMARY KEY (consumer_group, event_id, name)
) {options};

-- The time up to which a group may have forgotten what it consumed. 1970 says
-- that it has forgotten nothing.
CREATE TABLE IF NOT EXISTS {horizon} (
    consumer_group varchar(128) NOT NULL PRIMARY KEY,
    horizon        datetime(6) NOT NULL
) {options};

-- A person wants the event applied though its version is stale.
ALTER TABLE {held} ADD COLUMN forced tinyint(1) NOT NULL DEFAULT 0;

-- Why its dead letter will not be sent.
ALTER TABLE {held} ADD COLUMN dlt_note varchar(4096) NOT NULL DEFAULT '';
