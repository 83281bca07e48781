-- From here on events are not queued. What fills in a missing key stays.
DO $waybill$
DECLARE
    target regclass;
BEGIN
    FOR target IN
        SELECT t.tgrelid::regclass
        FROM pg_trigger t
        WHERE t.tgname = 'waybill_queue' AND t.tgparentid = 0
          AND (t.tgrelid = {event_literal}::regclass
               OR t.tgrelid IN (SELECT relid FROM pg_partition_tree({event_literal}::regclass)))
    LOOP
        EXECUTE format('DROP TRIGGER IF EXISTS waybill_queue ON %s', target);
    END LOOP;
END $waybill$;
