-- The event of each aggregate's highest version, whole, so that it outlives the
-- facts.
CREATE TABLE IF NOT EXISTS {head} (
    tenant_id         varchar(255) NOT NULL,
    aggregate_type    varchar(128) NOT NULL,
    aggregate_id      varchar(255) NOT NULL,
    aggregate_version bigint NOT NULL,
    event_id          varchar(128) NOT NULL,
    outbox_id         bigint NOT NULL,
    event_type        varchar(128) NOT NULL,
    payload           longblob NOT NULL,
    created_at        datetime(6) NOT NULL,
    PRIMARY KEY (aggregate_id, aggregate_type, tenant_id)
) {options};
