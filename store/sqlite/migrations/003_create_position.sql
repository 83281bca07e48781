-- How far a log was read, by whoever reads it. SQLite has none that others may
-- read; the table is here so that all outboxes look alike.
CREATE TABLE IF NOT EXISTS {position} (
    source     TEXT PRIMARY KEY NOT NULL,
    position   TEXT NOT NULL,
    updated_at TEXT NOT NULL DEFAULT ({now})
) STRICT;
