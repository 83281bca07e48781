-- How far the database's own log was read, by whoever reads it.
CREATE TABLE IF NOT EXISTS {position} (
    source     text COLLATE "C" PRIMARY KEY,
    position   text COLLATE "C" NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 50);
