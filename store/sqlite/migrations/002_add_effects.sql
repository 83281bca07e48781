-- Calls to systems outside of this database, so that each is made once in
-- effect: DOING until the answer is known.
CREATE TABLE {effect} (
  consumer_group  TEXT NOT NULL,
  event_id        TEXT NOT NULL,
  name            TEXT NOT NULL,
  idempotency_key TEXT NOT NULL,
  idempotent      INTEGER NOT NULL CHECK (idempotent IN (0, 1)),
  state           TEXT NOT NULL CHECK (state IN ('DOING', 'DONE')),
  owner           TEXT NOT NULL,
  until           TEXT NOT NULL,
  tries           INTEGER NOT NULL DEFAULT 1,
  result          BLOB,
  started_at      TEXT NOT NULL DEFAULT (strftime({iso}, 'now')),
  PRIMARY KEY (consumer_group, event_id, name)
) STRICT, WITHOUT ROWID;

-- The time up to which a group may have forgotten what it consumed.
CREATE TABLE {horizon} (
  consumer_group TEXT PRIMARY KEY,
  horizon        TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- forced: a person wants the event applied though its version is stale.
-- dlt_note: why its dead letter will not be sent.
ALTER TABLE {held} ADD COLUMN forced INTEGER NOT NULL DEFAULT 0 CHECK (forced IN (0, 1));
ALTER TABLE {held} ADD COLUMN dlt_note TEXT NOT NULL DEFAULT '';
