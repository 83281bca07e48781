-- What the tables say of themselves.
CREATE TABLE IF NOT EXISTS {meta} (
    `key`   varchar(64) NOT NULL PRIMARY KEY,
    `value` varchar(255) NOT NULL
) {options};

-- What people did, on either side, and why.
CREATE TABLE IF NOT EXISTS {audit} (
    id       bigint NOT NULL AUTO_INCREMENT PRIMARY KEY,
    at       datetime(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    actor    varchar(255) NOT NULL,
    verb     varchar(64) NOT NULL,
    target   varchar(255) NOT NULL,
    reason   text NOT NULL CHECK (reason <> ''),
    `before` text NOT NULL,
    `after`  text NOT NULL
) {options};
