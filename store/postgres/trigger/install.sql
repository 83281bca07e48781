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
        IF NOT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = target AND tgname = 'waybill_number') THEN
            EXECUTE format('CREATE TRIGGER waybill_number BEFORE INSERT ON %s FOR EACH STATEMENT EXECUTE FUNCTION %s()',
                target, {number_function_literal});
        END IF;
        -- A row trigger of a partitioned table is on its partitions by itself.
        IF NOT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = target AND tgname = 'waybill_key') THEN
            EXECUTE format('CREATE TRIGGER waybill_key BEFORE INSERT ON %s FOR EACH ROW '
                'WHEN (NEW.event_key IS NULL OR NEW.event_key = '''') EXECUTE FUNCTION %s()',
                target, {key_function_literal});
        END IF;
        IF NOT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = target AND tgname = 'waybill_queue') THEN
            EXECUTE format('CREATE TRIGGER waybill_queue AFTER INSERT ON %s REFERENCING NEW TABLE AS waybill_inserted '
                'FOR EACH STATEMENT EXECUTE FUNCTION %s()',
                target, {queue_function_literal});
        END IF;
    END LOOP;
END $waybill$;
