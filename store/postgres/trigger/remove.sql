DO $waybill$
DECLARE
    found record;
BEGIN
    FOR found IN
        SELECT t.tgname, t.tgrelid::regclass AS target
        FROM pg_trigger t
        WHERE t.tgname IN ('waybill_number', 'waybill_key', 'waybill_queue', 'waybill_head') AND t.tgparentid = 0
          AND (t.tgrelid = {event_literal}::regclass
               OR t.tgrelid IN (SELECT relid FROM pg_partition_tree({event_literal}::regclass)))
    LOOP
        EXECUTE format('DROP TRIGGER IF EXISTS %I ON %s', found.tgname, found.target);
    END LOOP;
END $waybill$;
