-- The functions run with the rights of their owner, so that a producer needs no
-- more than INSERT on the events, and look for tables in this schema alone: the
-- schema for temporary tables comes last, where nobody can put one in front.

-- A transaction gets its number before it takes an id, so that the relay can
-- tell from the numbers of running transactions which ids may still appear.
CREATE OR REPLACE FUNCTION {number_function}() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT AS $waybill$
BEGIN
    PERFORM pg_current_xact_id();
    RETURN NULL;
END $waybill$;

CREATE OR REPLACE FUNCTION {key_function}() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT AS $waybill$
BEGIN
    NEW.event_key := NEW.aggregate_id;
    RETURN NEW;
END $waybill$;

CREATE OR REPLACE FUNCTION {queue_function}() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $waybill$
BEGIN
    INSERT INTO {pending} AS p (id, lane, key_hash, topic_hash)
    SELECT n.id, {lane}, {key_hash}, {topic_hash}
    FROM waybill_inserted n
    {reset};
    RETURN NULL;
END $waybill$;

REVOKE ALL ON FUNCTION {number_function}(), {key_function}(), {queue_function}() FROM PUBLIC;
