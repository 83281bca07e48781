-- What each group has settled. The pair of group and id is what makes an
-- effect happen once.
CREATE TABLE IF NOT EXISTS {consumed} (
  consumer_group    TEXT NOT NULL,
  event_id          TEXT NOT NULL,
  event_type        TEXT NOT NULL DEFAULT '',
  tenant_id         TEXT NOT NULL DEFAULT '',
  aggregate_type    TEXT NOT NULL DEFAULT '',
  aggregate_id      TEXT NOT NULL DEFAULT '',
  aggregate_version INTEGER,
  outcome           TEXT NOT NULL CHECK (outcome IN ('APPLIED', 'STALE', 'SKIPPED')),
  topic             TEXT NOT NULL DEFAULT '',
  partition         INTEGER NOT NULL DEFAULT 0,
  position          INTEGER NOT NULL DEFAULT 0,
  received_at       TEXT NOT NULL DEFAULT (strftime({iso}, 'now')),
  consumed_at       TEXT NOT NULL DEFAULT (strftime({iso}, 'now')),
  duplicates        INTEGER NOT NULL DEFAULT 0,
  last_duplicate_at TEXT,
  PRIMARY KEY (consumer_group, event_id)
) STRICT;

CREATE INDEX IF NOT EXISTS {consumed_age} ON {consumed} (consumer_group, consumed_at, topic, partition, position);

-- There is no consumer_key: who writes has locked every key already.

CREATE TABLE IF NOT EXISTS {progress} (
  consumer_group TEXT NOT NULL,
  tenant_id      TEXT NOT NULL,
  aggregate_type TEXT NOT NULL,
  aggregate_id   TEXT NOT NULL,
  version        INTEGER NOT NULL,
  event_id       TEXT NOT NULL,
  updated_at     TEXT NOT NULL DEFAULT (strftime({iso}, 'now')),
  PRIMARY KEY (consumer_group, tenant_id, aggregate_type, aggregate_id)
) STRICT, WITHOUT ROWID;

-- What each group keeps aside. The record holds key, value and headers in
-- base64, since a broker's bytes need not be text.
CREATE TABLE IF NOT EXISTS {held} (
  seq               INTEGER PRIMARY KEY AUTOINCREMENT,
  consumer_group    TEXT NOT NULL,
  event_id          TEXT NOT NULL,
  topic             TEXT NOT NULL,
  event_key         TEXT NOT NULL,
  partition         INTEGER NOT NULL DEFAULT 0,
  position          INTEGER NOT NULL DEFAULT 0,
  event_type        TEXT NOT NULL DEFAULT '',
  tenant_id         TEXT NOT NULL DEFAULT '',
  aggregate_type    TEXT NOT NULL DEFAULT '',
  aggregate_id      TEXT NOT NULL DEFAULT '',
  aggregate_version INTEGER,
  state             TEXT NOT NULL CHECK (state IN ('WAITING', 'BLOCKED', 'RETRY', 'DEAD')),
  attempts          INTEGER NOT NULL DEFAULT 0,
  next_attempt_at   TEXT,
  held_at           TEXT NOT NULL DEFAULT (strftime({iso}, 'now')),
  first_failed_at   TEXT,
  last_failed_at    TEXT,
  first_error       TEXT NOT NULL DEFAULT '',
  last_error        TEXT NOT NULL DEFAULT '',
  stack             TEXT NOT NULL DEFAULT '',
  record            TEXT NOT NULL,
  dlt_sent_at       TEXT,
  UNIQUE (consumer_group, event_id)
) STRICT;

CREATE INDEX IF NOT EXISTS {held_key} ON {held} (consumer_group, topic, event_key, seq);
CREATE INDEX IF NOT EXISTS {held_state} ON {held} (consumer_group, state, next_attempt_at);
CREATE INDEX IF NOT EXISTS {held_waiting} ON {held} (consumer_group, tenant_id, aggregate_type, aggregate_id, aggregate_version)
  WHERE state = 'WAITING';

-- Who reads which partition, how the reader before stopped, and the event that
-- was being handled alone.
CREATE TABLE IF NOT EXISTS {reader} (
  consumer_group TEXT NOT NULL,
  topic          TEXT NOT NULL,
  partition      INTEGER NOT NULL,
  owner          TEXT NOT NULL DEFAULT '',
  fence          INTEGER NOT NULL DEFAULT 0,
  expires_at     TEXT NOT NULL DEFAULT '',
  clean          INTEGER NOT NULL DEFAULT 1 CHECK (clean IN (0, 1)),
  event_id       TEXT NOT NULL DEFAULT '',
  tries          INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (consumer_group, topic, partition)
) STRICT, WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS {member} (
  consumer_group TEXT NOT NULL,
  owner          TEXT NOT NULL,
  expires_at     TEXT NOT NULL,
  PRIMARY KEY (consumer_group, owner)
) STRICT, WITHOUT ROWID;
