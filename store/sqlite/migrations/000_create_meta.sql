-- What the tables say of themselves.
CREATE TABLE IF NOT EXISTS {meta} (
  key   TEXT NOT NULL PRIMARY KEY,
  value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

INSERT OR IGNORE INTO {meta} (key, value) VALUES ('schema_version', '{schema_version}'), ('lane_function', '1');

-- What people did, on either side, and why.
CREATE TABLE IF NOT EXISTS {audit} (
  id     INTEGER PRIMARY KEY AUTOINCREMENT,
  at     TEXT NOT NULL DEFAULT (strftime({iso}, 'now')),
  actor  TEXT NOT NULL,
  verb   TEXT NOT NULL,
  target TEXT NOT NULL,
  reason TEXT NOT NULL CHECK (reason <> ''),
  before TEXT NOT NULL DEFAULT '',
  after  TEXT NOT NULL DEFAULT ''
) STRICT;
