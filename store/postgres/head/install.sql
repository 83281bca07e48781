-- On the table, and on each partition, where an INSERT may go directly.
DO $waybill$
DECLARE
    target regclass;
BEGIN
    FOR target IN
        SELECT relid
        FROM (SELECT {event_literal}::regclass AS relid, -1 AS level
              UNION ALL SELECT relid, level FROM pg_partition_tree({event_literal}::regclass)) tree
        ORDER BY level
    LOOP
        IF NOT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = target AND tgname = 'waybill_head') THEN
            EXECUTE format('CREATE TRIGGER waybill_head AFTER INSERT ON %s REFERENCING NEW TABLE AS waybill_inserted '
                'FOR EACH STATEMENT EXECUTE FUNCTION %s()',
                target, {head_function_literal});
        END IF;
    END LOOP;
END $waybill$;
