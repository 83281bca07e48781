-- The facts. Rows are inserted and, long after, deleted; never updated, but for
-- the key that the trigger fills in. A payload may be given as text, as the
-- sqlite3 shell does; it is read as the bytes of that text.
CREATE TABLE IF NOT EXISTS {event} (
  id                INTEGER PRIMARY KEY AUTOINCREMENT CHECK (id > 0),
  event_id          TEXT NOT NULL UNIQUE CHECK (event_id <> '' AND length(CAST(event_id AS BLOB)) <= 128),
  tenant_id         TEXT NOT NULL ON CONFLICT REPLACE DEFAULT '' CHECK (length(CAST(tenant_id AS BLOB)) <= 255),
  aggregate_type    TEXT NOT NULL CHECK (length(CAST(aggregate_type AS BLOB)) <= 128),
  aggregate_id      TEXT NOT NULL CHECK (length(CAST(aggregate_id AS BLOB)) <= 255),
  aggregate_version INTEGER CHECK (aggregate_version >= 0),
  event_type        TEXT NOT NULL CHECK (event_type <> '' AND length(CAST(event_type AS BLOB)) <= 128),
  event_version     INTEGER NOT NULL ON CONFLICT REPLACE DEFAULT 1 CHECK (event_version >= 0),
  topic             TEXT NOT NULL CHECK (topic NOT IN ('', '.', '..') AND length(topic) <= 249 AND topic NOT GLOB '*[^-a-zA-Z0-9._]*'),
  event_key         TEXT NOT NULL ON CONFLICT REPLACE DEFAULT '' CHECK (length(CAST(event_key AS BLOB)) <= 255),
  payload           ANY NOT NULL CHECK (typeof(payload) IN ('blob', 'text')),
  content_type      TEXT NOT NULL ON CONFLICT REPLACE DEFAULT 'application/json',
  headers           TEXT CHECK (headers IS NULL OR json_valid(headers) AND json_type(headers) IN ('object', 'null')),
  occurred_at       TEXT NOT NULL ON CONFLICT REPLACE DEFAULT (strftime({iso}, 'now'))
                    CHECK (occurred_at GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]*' AND julianday(occurred_at) IS NOT NULL),
  created_at        TEXT NOT NULL ON CONFLICT REPLACE DEFAULT (strftime({iso}, 'now')),
  CHECK (event_key <> '' OR aggregate_id <> '')
) STRICT;

CREATE INDEX IF NOT EXISTS {event_aggregate} ON {event} (aggregate_id, aggregate_type, tenant_id, aggregate_version);
CREATE INDEX IF NOT EXISTS {event_key} ON {event} (event_key) WHERE event_key <> aggregate_id;

-- The queue: an event is unsettled exactly while it has a row here.
CREATE TABLE IF NOT EXISTS {pending} (
  id            INTEGER PRIMARY KEY,
  lane          INTEGER NOT NULL CHECK (lane BETWEEN 0 AND 63),
  key_hash      INTEGER NOT NULL,
  topic_hash    INTEGER NOT NULL,
  status        TEXT NOT NULL DEFAULT 'PENDING' CHECK (status IN ('PENDING', 'DEAD')),
  parked        INTEGER NOT NULL DEFAULT 0 CHECK (parked IN (0, 1)),
  skip          INTEGER NOT NULL DEFAULT 0 CHECK (skip IN (0, 1)),
  retry_count   INTEGER NOT NULL DEFAULT 0,
  next_retry_at TEXT,
  first_error   TEXT NOT NULL DEFAULT '',
  last_error    TEXT NOT NULL DEFAULT '',
  updated_at    TEXT NOT NULL DEFAULT (strftime({iso}, 'now'))
) STRICT;

CREATE INDEX IF NOT EXISTS {pending_hot} ON {pending} (lane, id) WHERE parked = 0;
CREATE INDEX IF NOT EXISTS {pending_due} ON {pending} (lane, next_retry_at) WHERE next_retry_at IS NOT NULL;
CREATE INDEX IF NOT EXISTS {pending_key} ON {pending} (key_hash, id);
CREATE INDEX IF NOT EXISTS {pending_held} ON {pending} (lane, key_hash) WHERE parked = 1;

-- The receipts, for people; never a reason to send or not to send.
CREATE TABLE IF NOT EXISTS {receipt} (
  id           INTEGER PRIMARY KEY,
  event_id     TEXT NOT NULL,
  outcome      TEXT NOT NULL CHECK (outcome IN ('SENT', 'SKIPPED')),
  via          TEXT NOT NULL DEFAULT '',
  published_at TEXT NOT NULL DEFAULT (strftime({iso}, 'now')),
  published_to TEXT NOT NULL DEFAULT '',
  note         TEXT NOT NULL DEFAULT ''
) STRICT;

CREATE INDEX IF NOT EXISTS {receipt_published} ON {receipt} (published_at);

CREATE TABLE IF NOT EXISTS {archive} (
  id                INTEGER PRIMARY KEY,
  event_id          TEXT NOT NULL,
  tenant_id         TEXT NOT NULL,
  aggregate_type    TEXT NOT NULL,
  aggregate_id      TEXT NOT NULL,
  aggregate_version INTEGER,
  event_type        TEXT NOT NULL,
  event_version     INTEGER NOT NULL,
  topic             TEXT NOT NULL,
  event_key         TEXT NOT NULL,
  payload           ANY NOT NULL,
  content_type      TEXT NOT NULL,
  headers           TEXT,
  occurred_at       TEXT NOT NULL,
  created_at        TEXT NOT NULL,
  outcome           TEXT NOT NULL,
  via               TEXT NOT NULL,
  published_at      TEXT NOT NULL,
  published_to      TEXT NOT NULL,
  note              TEXT NOT NULL,
  archived_at       TEXT NOT NULL DEFAULT (strftime({iso}, 'now'))
) STRICT;

CREATE INDEX IF NOT EXISTS {archive_event_id} ON {archive} (event_id);

-- The picture of one table with a status column.
CREATE VIEW IF NOT EXISTS {status} AS
SELECT e.id, e.event_id, e.tenant_id, e.aggregate_type, e.aggregate_id, e.aggregate_version, e.event_type, e.event_version,
       e.topic, e.event_key, e.payload, e.content_type, e.headers, e.occurred_at, e.created_at,
       COALESCE(p.status, r.outcome, 'PENDING') AS status, p.id IS NOT NULL AS queued,
       COALESCE(p.retry_count, 0) AS retry_count, p.next_retry_at,
       CASE WHEN p.id IS NULL THEN r.published_at END AS published_at
FROM {event} AS e
LEFT JOIN {pending} AS p ON p.id = e.id
LEFT JOIN {receipt} AS r ON r.id = e.id;

CREATE TABLE IF NOT EXISTS {lease} (
  lane       INTEGER PRIMARY KEY CHECK (lane BETWEEN 0 AND 63),
  owner      TEXT NOT NULL DEFAULT '',
  fence      INTEGER NOT NULL DEFAULT 0,
  expires_at TEXT NOT NULL DEFAULT ''
) STRICT;

INSERT OR IGNORE INTO {lease} (lane)
WITH RECURSIVE lanes (lane) AS (SELECT 0 UNION ALL SELECT lane + 1 FROM lanes WHERE lane < 63)
SELECT lane FROM lanes;

CREATE TABLE IF NOT EXISTS {relay} (
  owner      TEXT NOT NULL PRIMARY KEY,
  host       TEXT NOT NULL DEFAULT '',
  mode       TEXT NOT NULL DEFAULT '',
  started_at TEXT NOT NULL DEFAULT (strftime({iso}, 'now')),
  expires_at TEXT NOT NULL,
  report     TEXT NOT NULL DEFAULT ''
) STRICT;
