CREATE TABLE IF NOT EXISTS {meta} (
  key   TEXT NOT NULL PRIMARY KEY,
  value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

INSERT OR IGNORE INTO {meta} (key, value) VALUES ('schema_version', '1'), ('lane_function', '1');
