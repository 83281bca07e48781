-- How far the binlog was read, by whoever reads it.
CREATE TABLE IF NOT EXISTS {position} (
    source     VARCHAR(128) NOT NULL PRIMARY KEY,
    position   MEDIUMTEXT NOT NULL,
    updated_at DATETIME(6) NOT NULL DEFAULT '1970-01-01'
) {options};
