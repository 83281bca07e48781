-- What the tables say of themselves.
CREATE TABLE IF NOT EXISTS {meta} (
    key   text COLLATE "C" PRIMARY KEY,
    value text COLLATE "C" NOT NULL
);
