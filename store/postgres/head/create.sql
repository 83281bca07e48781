-- The event of each aggregate's highest version, whole, so that it outlives the
-- facts. The function has the rights and the path of those beside it.
CREATE TABLE IF NOT EXISTS {head} (
    tenant_id         text COLLATE "C" NOT NULL,
    aggregate_type    text COLLATE "C" NOT NULL,
    aggregate_id      text COLLATE "C" NOT NULL,
    aggregate_version bigint NOT NULL,
    event_id          text COLLATE "C" NOT NULL,
    outbox_id         bigint NOT NULL,
    event_type        text COLLATE "C" NOT NULL,
    payload           bytea NOT NULL,
    created_at        timestamptz NOT NULL,
    PRIMARY KEY (aggregate_id, aggregate_type, tenant_id)
) WITH (fillfactor = 80);

CREATE OR REPLACE FUNCTION {head_function}() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $waybill$
BEGIN
    {head_insert}
    FROM waybill_inserted n
    {head_newer};
    RETURN NULL;
END $waybill$;

REVOKE ALL ON FUNCTION {head_function}() FROM PUBLIC;
